"""The relay as a component of the node: HAProxy in relay pods, or launched by nodeagent. EFFECTS."""

import errno
import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nodeagent.components.component import Component
from nodeagent.components.relay import activation, haproxy_config, haproxy_sockets, ports
from nodeagent.components.relay.haproxy_sockets import ServerState, Silence, Unreachable
from nodeagent.components.relay.run_directory import RelayWatch, RunDirectory, pod_directories
from nodeagent.components.relay.state import HaproxyState, RelayChange, RelayState, difference
from nodeagent.components.relay.steering import responds, steer
from nodeagent.config.options import RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import HEALTH, Desired, Listener
from nodeagent.model.objects import ObjectRef

_LOG = logging.getLogger("nodeagent")


class Relay(Component[RelayState, RelayChange]):
    """Implements `component.Component`. A change breaks no open connection.

    With `relay.launch`, nodeagent starts one HAProxy and ends it again; open connections may continue for
    `drain_seconds`. Otherwise, it configures those of the relay pods; in a rollout of theirs there are two,
    which share the addresses (SO_REUSEPORT).
    """

    def __init__(self, options: RelayOptions, drain_seconds: float = 5.0) -> None:
        self._launch = options.launch
        self._run_dir = Path(options.run_dir)
        self._launched = RunDirectory(self._run_dir)
        self._drain_seconds = drain_seconds
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._options = options = haproxy_config.with_threads(options, processors)
        self._ranges = (options.ipv4, options.ipv6)
        # A change renders the same listeners twice: for the digest, and for the file.
        self._text = lru_cache(2)(lambda listeners: haproxy_config.render(listeners, options))
        self._ports = ports.HeldPorts()

    def read(self) -> RelayState:
        notes: list[str] = []
        hidden: list[str] = []
        haproxies = tuple(self._read(directory, notes, hidden) for directory in self._directories())
        running = any(haproxy.running for haproxy in haproxies)
        pods = () if self._launch else pod_directories(self._run_dir)
        return RelayState(
            haproxies,
            gone=tuple(pod.path for pod in pods if pod.is_gone()),
            stray=not (self._launch and running) and self._launched_processes(),
            notes=tuple(f"relay: {note}" for note in notes),
            unreadable=hidden[-1] if hidden else "",
        )

    def diff(self, actual: RelayState, desired: Desired, *, keep: bool = False) -> RelayChange:
        if not keep:
            return self._towards(actual, desired.listeners)
        known = {listener.bind for listener in desired.listeners}
        others = tuple(listener for listener in actual.listeners if listener.bind not in known)
        change = self._towards(actual, (*desired.listeners, *others))
        # To stop HAProxy adds nothing.
        steps = tuple(step for step in change.steps if step.action != "stop")
        return replace(change, steps=steps, leaving=frozenset(listener.bind for listener in others), gone=())

    def apply(self, diff: RelayChange) -> str:
        """Apply it, but for listeners that can't be bound: for one, HAProxy refuses a whole configuration."""
        for path in diff.gone:
            RunDirectory(Path(path), of_pod=True).remove()
        if diff.awaited:
            raise ApplyError(self._why_no_pod())
        if any(step.action == "stop" for step in diff.steps):
            activation.stop(self._launched.config, self._drain_seconds)
            self._launched.remove()
            if self._launch:
                return ""
        activation.check_descriptors(self._options.max_connections, len(diff.listeners))
        unavailable = {
            bind: "its address is not on this node"
            for bind, reason in ports.unbindable(listener.bind for listener in diff.listeners)
            if reason == errno.EADDRNOTAVAIL
        }
        taken = self._hold(diff.listeners)
        unavailable |= {bind: f"it is held by a process of {holder}" for bind, holder in taken.items()}
        available = tuple(listener for listener in diff.listeners if listener.bind not in unavailable)
        change = self._towards(diff.before, available)
        failed: list[str] = []
        for step in change.steps:
            if step.action in ("start", "reload"):
                try:
                    self._install(self._directory(step.haproxy), change.listeners)
                except ApplyError as error:
                    failed.append(f"{step.haproxy.pod}: {error}" if step.haproxy.pod else str(error))
        if failed and len(failed) >= sum(haproxy.running for haproxy in diff.before.haproxies):
            raise ApplyError("\n".join(failed))
        if not self._launch:
            self._steer()
        # One that is to be removed is not missed.
        left_out = (
            f"{bind}: {why}; the others are served"
            for bind, why in sorted(unavailable.items(), key=lambda item: item[0].sort_key())
            if bind not in diff.leaving
        )
        return "\n".join((*failed, *left_out))

    def watch(self) -> RelayWatch:
        return RelayWatch(lambda: [self._launched] if self._launch else pod_directories(self._run_dir))

    def reserve(self, desired: Desired) -> None:
        """Hold the listeners' ports for HAProxy, and no others, whether or not it runs."""
        self._hold(desired.listeners)

    def ready(self, actual: RelayState, desired: Desired) -> Mapping[Endpoint, str]:
        """Return the endpoints at which HAProxy says that it listens, and the kernel that only its user does.

        Any user can bind a port from 1024 on. For an ordinary user, who may not ask HAProxy, the kernel's
        list decides alone; if HAProxy's answer is unusable, that list, and whether it ends a connection.
        """
        wanted = {listener.bind: listener.load_balancer for listener in desired.listeners}
        ready = (_ready(self._directory(haproxy), wanted) for haproxy in actual.haproxies if wanted)
        return {bind: health for listening in ready for bind, health in listening.items()}

    def leave(self) -> None:
        """Remove what is left; a relay pod that runs keeps the empty configuration."""
        self._ports.release_except()
        for directory in pod_directories(self._run_dir):
            if directory.is_gone():
                directory.remove()
        with suppress(OSError):
            (self._run_dir / "relay").rmdir()  # if no pod is left
        if not self._launched_processes():
            self._launched.remove()

    def port_holders(self) -> dict[Endpoint, int]:
        """Return who has ports that the relay can't have: on every address, or in a range of the relay."""
        uids = [uid for directory in self._directories() if (uid := directory.owner) is not None]
        holders = ports.port_holders(ports.port_sockets(), uids[-1] if uids else os.geteuid())
        return {
            endpoint: holder
            for endpoint, holder in holders.items()
            if endpoint.address.is_unspecified or any(endpoint.address in network for network in self._ranges)
        }

    def statistics(self) -> tuple[ServerState, ...] | Unreachable:
        """Return each listener's server as the youngest HAProxy that answers sees it, or why none answers."""
        unreachable = Unreachable(str(self._run_dir / "relay"), Silence.ABSENT)
        for directory in reversed(self._directories()):
            servers = haproxy_sockets.read_servers(directory.stats_socket)
            if not isinstance(servers, Unreachable):
                return servers
            unreachable = servers
        return unreachable

    def _directories(self) -> list[RunDirectory]:
        """Return those of the HAProxies that may serve, the youngest last."""
        if self._launch:
            return [self._launched]
        pods = pod_directories(self._run_dir)
        return [pod for pod in pods if not pod.is_ending() and not pod.is_gone()]

    def _directory(self, haproxy: HaproxyState) -> RunDirectory:
        return self._launched if self._launch else RunDirectory(Path(haproxy.directory), of_pod=True)

    def _read(self, directory: RunDirectory, notes: list[str], hidden: list[str]) -> HaproxyState:
        """Return its state; add to `notes`, and to `hidden` why this user can't ask it."""
        listeners: tuple[Listener, ...] = ()
        text = None
        try:
            text = directory.read()
            listeners = haproxy_config.parse(text) if text is not None else ()
        except ApplyError as error:
            notes.append(str(error))
        except ValueError as error:
            notes.append(f"{directory.config}: {error}; the whole file will be written again")
        master = haproxy_sockets.read_processes(directory.master_socket)
        serving = haproxy_sockets.read_worker(directory.stats_socket)
        silences = [answer for answer in (master, serving) if isinstance(answer, Unreachable)]
        notes += [str(silent) for silent in silences if silent.why.is_running]
        if isinstance(master, Unreachable) and master.why is Silence.FORBIDDEN:
            hidden.append(str(master))
        running = not isinstance(master, Unreachable)
        digest = None if text is None else haproxy_config.digest(text)
        active = None
        if not isinstance(serving, Unreachable):
            active = serving.digest
        elif running and serving.why.is_running:
            # The worker's answer is unusable: the master's word counts, which read this file.
            active = digest
        return HaproxyState(
            directory.path,
            directory.pod,
            listeners,
            digest,
            running,
            active,
            directory.started,
            directory.mark,
            "" if isinstance(serving, Unreachable) else serving.version,
        )

    def _launched_processes(self) -> bool:
        config = self._launched.config
        return (self._launch or config.exists()) and bool(activation.running(config))

    def _towards(self, state: RelayState, listeners: tuple[Listener, ...]) -> RelayChange:
        wanted = tuple(sorted(listeners, key=lambda listener: listener.bind.sort_key()))
        digest = haproxy_config.digest(self._text(frozenset(listeners)))
        return difference(state, wanted, digest, launch=self._launch)

    def _hold(self, listeners: Iterable[Listener]) -> dict[Endpoint, str]:
        binds = {listener.bind for listener in listeners}
        if binds and not self._launch:
            binds.add(HEALTH)
        taken = self._ports.hold(binds)
        self._ports.release_except(binds)
        return taken

    def _why_no_pod(self) -> str:
        holder = self._ports.hold({HEALTH}).get(HEALTH)
        hint = f" {HEALTH}, which it needs, is held by a process of {holder}." if holder else ""
        return (
            f"no relay pod's HAProxy answers in {self._run_dir}/relay; until one does, nothing is relayed."
            f"{hint} See its log: kubectl -n nodeagent logs ds/nodeagent-relay. Without the DaemonSet "
            "nodeagent-relay, set relay.launch: true so that nodeagent starts HAProxy itself."
        )

    def _install(self, directory: RunDirectory, listeners: tuple[Listener, ...]) -> None:
        try:
            activation.make_room(directory, self._ranges, self._options.max_connections)
        except OSError as error:
            fields = {"err": str(error)}
            _LOG.warning("Could not close connections of earlier HAProxy processes", extra={"fields": fields})
        text = self._text(frozenset(listeners))
        activation.install(directory, text, listeners, self._drain_seconds, launch=self._launch)

    def _steer(self) -> None:
        """Make new connections arrive at the youngest HAProxy that serves; let its pod be ready."""
        state = self.read()
        serving = state.serving
        if serving is None:
            return
        directory = self._directory(serving)
        try:
            steered = steer({listener.bind for listener in serving.listeners}, directory.stats_socket)
        except Exception as error:  # noqa: BLE001 - of whatever cause, nothing depends on it
            _LOG.warning(
                "Could not steer new connections to the youngest HAProxy; some may be reset when another one "
                "ends",
                extra={"fields": {"pod": serving.pod, "err": f"{type(error).__name__}: {error}"}},
            )
        else:
            if steered:
                fields = {"pod": serving.pod, "listeners": len(steered)}
                _LOG.info("Steered new connections to the youngest HAProxy", extra={"fields": fields})
        try:
            directory.mark_ready(state.expected_mark)
        except OSError as error:
            raise ApplyError(f"{directory.path} can't be written: {error}; its pod is not ready.") from error


def _ready(directory: RunDirectory, wanted: Mapping[Endpoint, ObjectRef]) -> dict[Endpoint, str]:
    uid = directory.owner
    if uid is None:
        return {}
    reply = haproxy_sockets.read_servers(directory.stats_socket)
    own = ports.held_by(ports.listening_sockets(), uid) & wanted.keys()
    if isinstance(reply, Unreachable):
        serves = reply.why is Silence.FORBIDDEN or (
            reply.why.is_running and own and responds(min(own, key=Endpoint.sort_key))
        )
        return dict.fromkeys(own if serves else (), "")
    return {
        server.bind: server.health
        for server in reply
        if server.bind in own and server.load_balancer == wanted[server.bind]
    }
