"""The relay as a component of the node: HAProxy, launched by nodeagent or as a sidecar. EFFECTS."""

import logging
import os
import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from pathlib import Path

from nodeagent.components.component import Change, ComponentName, Half, PartlyAppliedError, Preview
from nodeagent.components.relay import haproxy_config, process
from nodeagent.components.relay.activation import Activation
from nodeagent.components.relay.draining import DrainProgress, drain, trim
from nodeagent.components.relay.haproxy_sockets import (
    ServerState,
    Silence,
    Unreachable,
    read_digest,
    read_processes,
    read_servers,
)
from nodeagent.components.relay.ports import HeldPorts, held_by, listening_sockets, port_holders, port_sockets
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.components.relay.state import RelayChange, RelayState, action_towards
from nodeagent.components.relay.steering import responds, steer
from nodeagent.config.options import RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, Listener

_LOG = logging.getLogger("nodeagent")

_ASK_SECONDS = 2.0
_PAUSE_SECONDS = 0.002


class Relay:
    """Implements `component.Component`: HAProxy on this node.

    With `relay.launch`, nodeagent starts HAProxy and ends it again; otherwise, it controls the one behind
    `master.sock` in HAProxy's directory (the sidecar's). Either way, a change breaks no open connection.

    Args:
        options: the relay's.
        drain_seconds: how long connections may continue when HAProxy is stopped (not at a reload: there, the
            old process stays for them).
    """

    name: ComponentName = "relay"

    def __init__(self, options: RelayOptions, drain_seconds: float = 5.0) -> None:
        self._launch = options.launch
        self._directory = RunDirectory(Path(options.haproxy_directory))
        self._ranges = (options.ipv4, options.ipv6)
        self._limits = haproxy_config.Limits.of(options, len(os.sched_getaffinity(0)))
        # A change renders the same listeners twice: for the digest, and for the file.
        self._text = lru_cache(2)(
            lambda listeners: haproxy_config.render(listeners, self._directory.path, self._limits)
        )
        self._activation = Activation(self._directory, drain_seconds, launch=options.launch)
        self._patience = (options.idle_seconds, options.drain_seconds)
        self._ports = HeldPorts()

    def read(self) -> RelayState:
        """Read the actual state. Raises nothing: the state's notes say what can't be read."""
        self._activation.await_master()
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
        hidden = isinstance(found, Unreachable) and found.why is Silence.FORBIDDEN
        return RelayState(
            listeners=listeners,
            file_digest=None if text is None else haproxy_config.digest(text),
            running=running,
            active_digest=None if isinstance(serving, Unreachable) else serving,
            stray=self._launch and not running and bool(process.running(self._directory.config)),
            notes=tuple(f"relay: {note}" for note in notes),
            unreadable=str(found) if hidden else "",
        )

    def diff(self, actual: RelayState, desired: Desired) -> Change[RelayState, RelayChange]:
        """Return the change to the desired listeners. Pure.

        Raises:
            ApplyError: a listener can't be rendered.
        """
        known = {listener.bind for listener in desired.listeners}
        others = (listener for listener in actual.listeners if listener.bind not in known)
        growing = self._towards(actual, (*desired.listeners, *others))
        whole = self._towards(actual, desired.listeners)
        grows = growing.action != "stop"
        return Change(
            whole,
            grow=Half(
                str(growing) if grows else "",
                lambda: self._apply(growing, whole.listeners) if grows else actual,
            ),
            shrink=Half(
                str(whole) if whole.removed or not whole.listeners else "", lambda: self._shrink(whole)
            ),
            preview=lambda: Preview(str(whole)),
        )

    def _shrink(self, change: RelayChange) -> RelayState:
        """Remove listeners; stop HAProxy if none is left and nodeagent launched it. Errors as in `_apply`.

        After a reload, also by `grow`, it returns when HAProxy's master answers again.
        """
        state = self._apply(change, change.listeners)
        self._activation.await_master()
        return state

    def release(self) -> None:
        """Release the ports; HAProxy keeps those that it has. Idempotent."""
        self._ports.keep()

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
        while True:
            old_may_answer = self._activation.reload_ends()
            told = self.statistics()
            own = held_by(listening_sockets(), uid) & wanted.keys()
            if isinstance(told, Unreachable):
                serves = told.why is Silence.FORBIDDEN or (
                    told.why.is_running and own and responds(min(own, key=Endpoint.sort_key))
                )
                ready = own if serves else frozenset()
            else:
                serving = {(server.bind, server.load_balancer) for server in told}
                ready = frozenset(bind for bind in own if (bind, wanted[bind]) in serving)
            if ready == wanted.keys() or not old_may_answer:
                return ready
            time.sleep(_PAUSE_SECONDS)

    def served_by_another(self, endpoints: AbstractSet[Endpoint]) -> frozenset[Endpoint]:
        """Return those on which another HAProxy of the same user listens: the older pod's, in an upgrade.

        This one does not: it does not run, or it says that it has no such listener.
        """
        uid, told = self._relay_uid(), self.statistics()
        if uid is None or (isinstance(told, Unreachable) and told.why.is_running):
            return frozenset()
        own = () if isinstance(told, Unreachable) else told
        listening = held_by(listening_sockets(), uid) & endpoints
        return listening - {server.bind for server in own}

    def steer(self, endpoints: AbstractSet[Endpoint]) -> None:
        """Make new connections to these endpoints arrive here, and not at another pod's HAProxy. Idempotent.

        Whatever fails is logged: the kernel distributes the connections then, and both serve.
        """
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
            yield from drain(self._directory.master_socket, *self._patience)

    def _towards(self, state: RelayState, listeners: tuple[Listener, ...]) -> RelayChange:
        wanted = tuple(sorted(listeners, key=lambda listener: listener.bind.sort_key()))
        digest = haproxy_config.digest(self._text(frozenset(listeners)))
        return RelayChange(state, wanted, *action_towards(state, wanted, digest, launch=self._launch))

    def _apply(self, change: RelayChange, wanted: Iterable[Listener]) -> RelayState:
        """Apply the change, and return when it is in effect. Idempotent.

        A configuration that HAProxy rejects is not left in place: the earlier file is restored and the
        earlier worker continues. It is checked beforehand only if no HAProxy runs: a reload would reject it
        as well. A crash in between is repaired: `read` then finds that the active configuration is not the
        file's. Free ports are held from here on, even if nothing changes: as long as this program runs and
        needs them, no other user can take one of them, whether or not HAProxy runs.

        Raises:
            PartlyAppliedError: another program has the port of a `wanted` listener; the others are served.
            ApplyError: the text says what is there now.
        """
        binds = {listener.bind for listener in change.listeners}
        if change.action not in {"none", "stop"}:
            needed = haproxy_config.descriptors(len(binds), self._limits)
            process.check_descriptors(self._limits.connections, len(binds), needed)
        taken = self._ports.hold(binds)
        if taken:
            served = tuple(listener for listener in change.listeners if listener.bind not in taken)
            change = self._towards(change.before, served)
        state = change.before
        if change.action == "stop":
            self._activation.stop()
            state = self.read()
        elif change:
            self._make_room()
            text = self._text(frozenset(change.listeners))
            if self._activation.install(text, change.listeners):
                digest = haproxy_config.digest(text)
                state = RelayState(change.listeners, digest, running=True, active_digest=digest)
            else:
                state = self.read()
        self._ports.keep(binds)
        missed = {listener.bind for listener in wanted} & taken.keys()
        if missed:
            lines = (
                f"{bind} is held by a process of {taken[bind]}; the others are served"
                for bind in sorted(missed, key=Endpoint.sort_key)
            )
            raise PartlyAppliedError("\n".join(lines), state, str(change))
        return state

    def _make_room(self) -> None:
        """Close connections beyond the limit in all processes together: the reload leaves one more."""
        self._activation.await_master()
        found = read_processes(self._directory.master_socket, _ASK_SECONDS)
        if isinstance(found, Unreachable) or not found.old_workers:
            return
        pids = (*found.workers, *found.old_workers)
        try:
            most, uid = self._limits.connections, self._relay_uid()
            trim(self._directory.master_socket, pids, self._ranges, most, uid)
        except OSError as error:
            fields = {"err": str(error)}
            _LOG.warning("Could not close connections of earlier HAProxy processes", extra={"fields": fields})

    def _relay_uid(self) -> int | None:
        """Return HAProxy's user: the owner of the socket in a directory closed to others; None without."""
        for file in (self._directory.stats_socket, self._directory.path):
            try:
                return file.stat().st_uid
            except OSError:
                continue
        return None
