"""The relay as a component of the node: HAProxy, launched by nodeagent or as a sidecar. EFFECTS."""

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nodeagent.components.relay import haproxy_config, process
from nodeagent.components.relay.activation import Activation, RunDirectory
from nodeagent.components.relay.draining import DrainProgress, drain, trim
from nodeagent.components.relay.haproxy_sockets import (
    RelayWatch,
    ServerState,
    Silence,
    Unreachable,
    read_digest,
    read_processes,
    read_servers,
)
from nodeagent.components.relay.ports import (
    HeldPorts,
    held_by,
    listening_sockets,
    port_holders,
    port_sockets,
    unbindable,
)
from nodeagent.components.relay.state import Action, RelayChange, RelayState, action_towards
from nodeagent.components.relay.steering import responds, steer
from nodeagent.config.options import RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, Listener

_LOG = logging.getLogger("nodeagent")

_ASK_SECONDS = 2.0


class Relay:
    """Implements `component.Component`: HAProxy on this node.

    With `relay.launch`, nodeagent starts HAProxy and ends it again; otherwise, it controls the one behind
    `master.sock` in HAProxy's directory (the sidecar's). Either way, a change breaks no open connection.

    Args:
        options: the relay's.
        drain_seconds: how long connections may continue when HAProxy is stopped (not at a reload: there, the
            old process stays for them).
    """

    def __init__(self, options: RelayOptions, drain_seconds: float = 5.0) -> None:
        self._launch = options.launch
        self._directory = RunDirectory(Path(options.haproxy_directory))
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._options = options = haproxy_config.with_threads(options, processors)
        self._ranges = (options.ipv4, options.ipv6)
        # A change renders the same listeners twice: for the digest, and for the file.
        self._text = lru_cache(2)(
            lambda listeners: haproxy_config.render(listeners, self._directory.path, options)
        )
        self._activation = Activation(self._directory, drain_seconds, launch=options.launch)
        self._ports = HeldPorts()
        self._steered: AbstractSet[Endpoint] | None = None

    def read(self) -> RelayState:
        """Read the actual state. Raises nothing: the state's notes say what can't be read."""
        notes: list[str] = []
        listeners: tuple[Listener, ...] = ()
        text = None
        try:
            text = self._directory.read()
            listeners = haproxy_config.parse(text) if text is not None else ()
        except ApplyError as error:
            notes.append(str(error))
        except ValueError as error:
            notes.append(f"{self._directory.config}: {error}; the whole file will be written again")
        found = read_processes(self._directory.master_socket, _ASK_SECONDS)
        serving = read_digest(self._directory.stats_socket, _ASK_SECONDS)
        notes += [
            str(silent)
            for silent in (found, serving)
            if isinstance(silent, Unreachable) and silent.why.is_running
        ]
        running = not isinstance(found, Unreachable)
        active = None if isinstance(serving, Unreachable) else serving
        if running and text is not None and isinstance(serving, Unreachable) and serving.why.is_running:
            # The worker's answer is unusable: the master's word counts, which read this file.
            active = haproxy_config.digest(text)
        hidden = isinstance(found, Unreachable) and found.why is Silence.FORBIDDEN
        return RelayState(
            listeners=listeners,
            file_digest=None if text is None else haproxy_config.digest(text),
            running=running,
            active_digest=active,
            stray=self._launch and not running and bool(process.running(self._directory.config)),
            notes=tuple(f"relay: {note}" for note in notes),
            unreadable=str(found) if hidden else "",
        )

    def diff(self, actual: RelayState, desired: Desired, *, keep: bool = False) -> RelayChange:
        """Return the difference from the desired listeners; see `component.Component`. Pure.

        Raises:
            ApplyError: a listener can't be rendered.
        """
        if not keep:
            return self._towards(actual, desired.listeners)
        known = {listener.bind for listener in desired.listeners}
        others = tuple(listener for listener in actual.listeners if listener.bind not in known)
        change = self._towards(actual, (*desired.listeners, *others))
        # To stop HAProxy adds nothing.
        action: Action = "none" if change.action == "stop" else change.action
        return replace(change, action=action, leaving=frozenset(listener.bind for listener in others))

    def apply(self, diff: RelayChange) -> str:
        """Apply a change, and return when it is in effect; see `component.Component`, `Activation.install`.

        A crash in between is repaired: `read` then finds that the active configuration is not the file's. A
        listener whose port another program has, or whose address is missing, is left out: HAProxy refuses a
        whole configuration if it can't bind a part of it.
        """
        if diff.action == "stop":
            self._activation.stop()
            self.release()
            return ""
        needed = haproxy_config.descriptors(len(diff.listeners), self._options)
        process.check_descriptors(self._options.max_connections, len(diff.listeners), needed)
        unavailable = {
            bind: "its address is not on this node"
            for bind, reason in unbindable(listener.bind for listener in diff.listeners)
            if reason == errno.EADDRNOTAVAIL
        }
        taken = self.hold_ports(diff.listeners)
        unavailable |= {bind: f"it is held by a process of {holder}" for bind, holder in taken.items()}
        available = tuple(listener for listener in diff.listeners if listener.bind not in unavailable)
        change = self._towards(diff.before, available)
        if change:
            self._make_room()
            self._activation.install(self._text(frozenset(change.listeners)), change.listeners)
        # One that is to be removed is not missed.
        return "\n".join(
            f"{bind}: {why}; the others are served"
            for bind, why in sorted(unavailable.items(), key=lambda item: item[0].sort_key())
            if bind not in diff.leaving
        )

    def hold_ports(self, listeners: Iterable[Listener]) -> dict[Endpoint, str]:
        """Hold the listeners' ports for HAProxy, and no others; return those that another program has.

        As long as this program runs, no other user can take one of them, whether or not HAProxy runs.
        Idempotent.

        Raises:
            ApplyError: there are too few file descriptors; nothing was changed.
        """
        binds = {listener.bind for listener in listeners}
        taken = self._ports.hold(binds)
        self._ports.release_except(binds)
        return taken

    def watch(self) -> RelayWatch:
        """Return notifications that HAProxy ended or was reloaded."""
        return RelayWatch(self._directory.master_socket)

    def release(self) -> None:
        """Release the ports; HAProxy keeps those that it has. Idempotent."""
        self._ports.release_except()

    def ready(self, listeners: Iterable[Listener]) -> frozenset[Endpoint]:
        """Return those of the listeners' endpoints that are HAProxy's own.

        It has such a listener for that load balancer, and the listening socket belongs to its user. An answer
        there shows nothing: any user of the node can bind a port from 1024 on. For an ordinary user, who may
        not ask HAProxy, only the kernel's list of sockets decides; if HAProxy's answer is unusable, that
        list, and whether HAProxy ends a connection.
        """
        wanted = {listener.bind: listener.load_balancer for listener in listeners}
        uid = self._relay_uid()
        if not wanted or uid is None:
            return frozenset()
        reply = self.statistics()
        own = held_by(listening_sockets(), uid) & wanted.keys()
        if isinstance(reply, Unreachable):
            serves = reply.why is Silence.FORBIDDEN or (
                reply.why.is_running and own and responds(min(own, key=Endpoint.sort_key))
            )
            return own if serves else frozenset()
        serving = {(server.bind, server.load_balancer) for server in reply}
        return frozenset(bind for bind in own if (bind, wanted[bind]) in serving)

    def served_by_another(self, endpoints: AbstractSet[Endpoint]) -> frozenset[Endpoint]:
        """Return those on which another HAProxy of the same user listens: the older pod's, in an upgrade.

        This one does not: it does not run, or it says that it has no such listener.
        """
        uid, reply = self._relay_uid(), self.statistics()
        if uid is None or (isinstance(reply, Unreachable) and reply.why.is_running):
            return frozenset()
        own = () if isinstance(reply, Unreachable) else reply
        listening = held_by(listening_sockets(), uid) & endpoints
        return listening - {server.bind for server in own}

    def steer(self, endpoints: AbstractSet[Endpoint]) -> None:
        """Make new connections to these endpoints arrive here, and not at another pod's HAProxy. Idempotent.

        Once that is done, the same value (by its identity) is not done again. Whatever fails is logged: the
        kernel distributes the connections then, and both serve.
        """
        if endpoints is self._steered:
            return
        self._steered = endpoints
        try:
            steered = steer(endpoints, self._directory.stats_socket)
        except Exception as error:  # noqa: BLE001 - of whatever cause, nothing depends on it
            _LOG.warning(
                "Could not steer new connections to this HAProxy; some may be reset when another one ends",
                extra={"fields": {"err": f"{type(error).__name__}: {error}"}},
            )
        else:
            if steered:
                _LOG.info(
                    "Steered new connections to this HAProxy, which shares its ports with another one",
                    extra={"fields": {"listeners": len(steered)}},
                )

    def port_holders(self) -> dict[Endpoint, int]:
        """Return who has ports that the relay can't have: on every address, or in a range of the relay."""
        uid = self._relay_uid()
        holders = port_holders(port_sockets(), os.geteuid() if uid is None else uid)
        return {
            endpoint: holder
            for endpoint, holder in holders.items()
            if endpoint.address.is_unspecified or any(endpoint.address in each for each in self._ranges)
        }

    def statistics(self) -> tuple[ServerState, ...] | Unreachable:
        """Return the state of each listener's server by HAProxy's health checks, or why it is unknown."""
        return read_servers(self._directory.stats_socket, _ASK_SECONDS)

    def own_launched(self) -> None:
        """Treat a HAProxy that nodeagent launched with an earlier configuration as launched. Idempotent."""
        self._launch = self._launch or process.launched(self._directory.config)

    def leave(self) -> None:
        """Remove what is left if no listener is desired: files, and the held ports. Idempotent.

        A running sidecar is not nodeagent's: it keeps the empty configuration so that it can restart.

        Raises:
            ApplyError: something is left; the text says what.
        """
        if not self.read().running:
            self._directory.remove()
        self.release()

    def drain(self) -> Iterator[DrainProgress]:
        """Close the connections of a sidecar that is about to end: see `draining.drain`.

        Returns:
            The result of each round, until it has ended; none for a HAProxy that nodeagent launched, which
            stays.
        """
        if not self._launch:
            patience = (self._options.idle_seconds, self._options.drain_seconds)
            yield from drain(self._directory.master_socket, *patience)

    def _towards(self, state: RelayState, listeners: tuple[Listener, ...]) -> RelayChange:
        wanted = tuple(sorted(listeners, key=lambda listener: listener.bind.sort_key()))
        digest = haproxy_config.digest(self._text(frozenset(listeners)))
        return RelayChange(state, wanted, *action_towards(state, wanted, digest, launch=self._launch))

    def _make_room(self) -> None:
        """Close connections beyond the limit in all processes together: the reload leaves one more."""
        found = read_processes(self._directory.master_socket, _ASK_SECONDS)
        if isinstance(found, Unreachable) or not found.old_workers:
            return
        pids = (*found.workers, *found.old_workers)
        try:
            most, uid = self._options.max_connections, self._relay_uid()
            trim(self._directory.master_socket, pids, self._ranges, most, uid)
        except OSError as error:
            fields = {"err": str(error)}
            _LOG.warning("Could not close connections of earlier HAProxy processes", extra={"fields": fields})

    def _relay_uid(self) -> int | None:
        """Return HAProxy's user: the owner of the socket in a directory closed to others; None without."""
        for file in (self._directory.stats_socket, self._directory.path):
            try:
                return file.lstat().st_uid
            except OSError:
                continue
        return None
