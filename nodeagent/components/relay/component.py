"""The relay as a component of the node: HAProxy, launched by nodeagent or as a sidecar. EFFECTS."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nodeagent.components.component import ComponentName, PartlyAppliedError, Preview
from nodeagent.components.relay import haproxy_config, process
from nodeagent.components.relay.draining import DrainProgress, drain
from nodeagent.components.relay.haproxy_sockets import (
    ReloadReply,
    ServerState,
    Silence,
    Unreachable,
    Worker,
    read_processes,
    read_servers,
    read_worker,
    reload_haproxy,
)
from nodeagent.components.relay.ports import (
    HeldPorts,
    held_by,
    listening_sockets,
    missing,
    port_holders,
    port_sockets,
)
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.components.relay.state import RelayChange, RelayState, compare
from nodeagent.config.options import RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, Listener

_ASK_SECONDS = 2.0
_LOOK_SECONDS = 1.0
# `reload` of 2.7 and newer answers only when the new worker is ready or has failed.
_RELOAD_SECONDS = 15.0
# HAProxy binds for two seconds before it gives up, so a failure shows well within this.
_IN_FORCE_SECONDS = 10.0
# A sidecar that waits for its configuration starts at once; a missing one never does.
_SIDECAR_SECONDS = 3.0
_PAUSE_SECONDS = 0.002


class Relay:
    """Implements `component.Component`: HAProxy on this node.

    With `relay.launch`, nodeagent starts HAProxy and ends it again; otherwise, it controls the one behind
    `master.sock` in HAProxy's directory (the sidecar's). Either way, a change breaks no open connection.

    Args:
        options: the relay's options.
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
        self._text = lru_cache(2)(self._render)
        self._drain_seconds = drain_seconds
        self._patience = (options.idle_seconds, options.drain_seconds)
        self._ports = HeldPorts()
        self._master_due = 0.0

    def read(self) -> RelayState:
        """Read the actual state. Raises nothing: the state's notes say what can't be read."""
        self._await_master()
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
        serving = read_worker(self._directory.stats_socket, _ASK_SECONDS)
        notes += [
            str(silent)
            for silent in (found, serving)
            if isinstance(silent, Unreachable) and silent.why not in {Silence.ABSENT, Silence.REFUSED}
        ]
        running = not isinstance(found, Unreachable)
        return RelayState(
            listeners=listeners,
            file_digest=None if text is None else haproxy_config.digest(text),
            running=running,
            in_force=None if isinstance(serving, Unreachable) else serving.digest,
            version="" if isinstance(serving, Unreachable) else serving.version,
            stray=self._launch and not running and bool(process.running(self._directory.config)),
            notes=tuple(f"relay: {note}" for note in notes),
        )

    def diff(self, actual: RelayState, desired: Desired) -> RelayChange:
        """Return the change to the desired listeners. Pure.

        Raises:
            ApplyError: a listener can't be rendered.
        """
        known = {listener.bind for listener in desired.listeners}
        others = (listener for listener in actual.listeners if listener.bind not in known)
        growing = self._towards(actual, (*desired.listeners, *others))
        return replace(self._towards(actual, desired.listeners), growing=growing)

    def preview(self, change: RelayChange) -> Preview:
        """Return the change, one line for each listener. Pure."""
        return Preview(str(change))

    def grow(self, change: RelayChange) -> RelayState:
        """Add and change listeners, and return when the configuration is in effect. Idempotent.

        A configuration that HAProxy rejects is not left in place: the earlier file is restored and the
        earlier worker continues. It is checked beforehand only if no HAProxy runs: a reload would reject it
        as well. A crash in between is repaired: `read` then finds that the active configuration is not the
        file's. Free ports are held from here on, even if nothing changes: as long as this program runs and
        needs them, no other user can take one of them, whether or not HAProxy runs.

        Raises:
            PartlyAppliedError: another program has a listener's port; the others are served.
            ApplyError: the text says what is there now.
        """
        growing = change if change.growing is None else change.growing
        return change.before if growing.action == "stop" else self._apply(growing, change.listeners)

    def shrink(self, change: RelayChange) -> RelayState:
        """Remove listeners; stop HAProxy if none is left and nodeagent launched it. Errors as in `grow`.

        After a reload, also by `grow`, it returns when HAProxy's master answers again.
        """
        state = self._apply(change, change.listeners)
        self._await_master()
        return state

    def release(self) -> None:
        """Release the ports; HAProxy keeps those that it has. Idempotent."""
        self._ports.keep()

    def _install(self, change: RelayChange) -> RelayState:
        text = self._text(frozenset(change.listeners))
        haproxy = process.program()
        if haproxy is None and self._launch:
            raise ApplyError(
                "relay.launch is true but there is no haproxy program in PATH. The relay was left as it was. "
                "Install it (apt-get install haproxy)."
            )
        self._await_master()
        before = read_processes(self._directory.master_socket, _ASK_SECONDS)
        if isinstance(before, Unreachable) and haproxy is not None:
            process.check(text, haproxy)
        previous = self._directory.read()
        if text != previous:
            self._directory.install(text)
        if not isinstance(before, Unreachable):
            worker = self._reload(change, text, previous, before.reloads)
            return RelayState(
                change.listeners, worker.digest, running=True, in_force=worker.digest, version=worker.version
            )
        if haproxy is not None and self._launch:
            if before.why is Silence.LATE:
                # It hangs, and would continue to take its share of the new connections.
                process.stop(self._directory.config, self._drain_seconds)
            self._start(haproxy, text)
        else:
            self._await_sidecar(change, text, before)
        return self.read()

    def ready(self, listeners: Iterable[Listener]) -> frozenset[Endpoint]:
        """Return those of the listeners' endpoints that are HAProxy's own.

        It has such a listener for that load balancer, and the listening socket belongs to its user. An answer
        there shows nothing: any user of the node can bind a port from 1024 on. For an ordinary user, who may
        not ask HAProxy, only the kernel's list of sockets decides.
        """
        wanted = {listener.bind: listener.load_balancer for listener in listeners}
        uid = self._relay_uid()
        if not wanted or uid is None:
            return frozenset()
        while True:
            old_may_answer = self._reload_ends()
            own = held_by(listening_sockets(), uid) & wanted.keys()
            told = self.statistics()
            if isinstance(told, Unreachable):
                ready = own if told.why is Silence.FORBIDDEN else frozenset()
            else:
                serving = {(server.bind, server.load_balancer) for server in told}
                ready = frozenset(bind for bind in own if (bind, wanted[bind]) in serving)
            if ready == wanted.keys() or not old_may_answer:
                return ready
            time.sleep(_PAUSE_SECONDS)

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

    def answers(self) -> bool:
        """Whether HAProxy's master and its worker answer, each within a second."""
        found = read_processes(self._directory.master_socket, _LOOK_SECONDS)
        serving = read_worker(self._directory.stats_socket, _LOOK_SECONDS)
        return not isinstance(found, Unreachable) and not isinstance(serving, Unreachable)

    def drain(self) -> Iterator[DrainProgress]:
        """Close the connections of a sidecar that is about to end: see `draining.drain`.

        Returns:
            The result of each round, until it has ended; none for a HAProxy that nodeagent launched, which
            stays.
        """
        if not self._launch:
            yield from drain(self._directory.master_socket, *self._patience)

    def _towards(self, state: RelayState, listeners: tuple[Listener, ...]) -> RelayChange:
        digest = haproxy_config.digest(self._text(frozenset(listeners)))
        return compare(state, listeners, digest, launch=self._launch)

    def _render(self, listeners: frozenset[Listener]) -> str:
        return haproxy_config.render(listeners, self._directory.path, self._limits)

    def _apply(self, change: RelayChange, wanted: Iterable[Listener]) -> RelayState:
        """Apply the change; a port that another program took is an error if a `wanted` one needs it."""
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
            self._stop()
            state = self.read()
        elif change:
            state = self._install(change)
        self._ports.keep(binds)
        missed = {listener.bind for listener in wanted} & taken.keys()
        if missed:
            lines = (
                f"{bind} is held by a process of {taken[bind]}; the others are served"
                for bind in sorted(missed, key=Endpoint.sort_key)
            )
            raise PartlyAppliedError("\n".join(lines), state, str(change))
        return state

    def _relay_uid(self) -> int | None:
        """Return HAProxy's user: the owner of the socket in a directory closed to others; None without."""
        for file in (self._directory.stats_socket, self._directory.path):
            try:
                return file.stat().st_uid
            except OSError:
                continue
        return None

    def _stop(self) -> None:
        process.stop(self._directory.config, self._drain_seconds)
        self._directory.remove()

    def _start(self, haproxy: str, text: str) -> None:
        # nodeagent's processes without a socket (something emptied the run directory): the new one takes over
        # their ports, then they end with their last connection.
        strays = process.running(self._directory.config)
        process.start(haproxy, self._directory.config, self._directory.master_socket)
        process.drain(strays, self._directory.config)
        if not self._in_force(text, _IN_FORCE_SECONDS):
            raise ApplyError(
                f"HAProxy was started with {self._directory.config} but {self._directory.stats_socket} "
                f"does not answer within {_IN_FORCE_SECONDS:.0f} s. It was left running; apply again."
            )

    def _reload(self, change: RelayChange, text: str, previous: str | None, reloads: int) -> Worker:
        answer = reload_haproxy(self._directory.master_socket, _RELOAD_SECONDS)
        if isinstance(answer, Unreachable):
            raise ApplyError(
                f"Could not make HAProxy reload: {answer}. The new configuration is in "
                f"{self._directory.config}, the earlier one is still active; apply again."
            )
        refused = answer.outcome is ReloadReply.REFUSED
        if not refused and (worker := self._in_force(text, _IN_FORCE_SECONDS, reloads)):
            return worker
        if refused or self._has_failed(reloads):
            self._directory.restore(previous)
            haproxy = process.program()
            if haproxy is not None and not answer.log:
                process.check(text, haproxy)  # Only this shows why HAProxy 2.6 and older reject a reload.
            raise ApplyError(
                "HAProxy could not use its new configuration; the earlier file was restored and the "
                f"earlier process continues.{_causes(change, answer.log)}"
            )
        raise ApplyError(
            f"HAProxy was asked to reload but does not run {self._directory.config} "
            f"after {_IN_FORCE_SECONDS:.0f} s; what it ran before might still be active. "
            "Apply again; if that does not help, see HAProxy's log."
        )

    def _await_sidecar(self, change: RelayChange, text: str, silence: Unreachable) -> None:
        if not change.listeners or self._in_force(text, _SIDECAR_SECONDS):
            return
        raise ApplyError(
            f"no HAProxy answers at {silence}. Nothing is relayed. The configuration is in "
            f"{self._directory.config} and is active as soon as HAProxy runs with it: start the sidecar, "
            "or set relay.launch: true so that nodeagent starts HAProxy itself."
        )

    def _in_force(self, text: str, seconds: float, reloads: int | None = None) -> Worker | None:
        """Wait until the running worker reports this text's digest, and return it.

        And, but for a reload, until its master answers. Gives up after that many seconds, or when the reload
        after `reloads` earlier ones is known to have failed.
        """
        digest = haproxy_config.digest(text)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            serving = read_worker(self._directory.stats_socket, _ASK_SECONDS)
            if not isinstance(serving, Unreachable) and serving.digest == digest:
                if reloads is not None:
                    self._master_due = time.monotonic() + _IN_FORCE_SECONDS
                    return serving
                if not isinstance(read_processes(self._directory.master_socket, _ASK_SECONDS), Unreachable):
                    return serving
            elif reloads is not None and self._has_failed(reloads):
                return None
            time.sleep(_PAUSE_SECONDS)
        return None

    def _await_master(self) -> None:
        while self._reload_ends():
            time.sleep(_PAUSE_SECONDS)

    def _reload_ends(self) -> bool:
        """Whether the new worker serves, but its master does not answer yet.

        The master executes itself once more then, and its socket refuses connections meanwhile, as that of a
        HAProxy that has ended. The old worker, which shares sockets with the new one, may not have stopped
        either. Nothing that points at the new worker needs to wait for that: it is a quarter of a reload.
        """
        if self._master_due:
            found = read_processes(self._directory.master_socket, _ASK_SECONDS)
            if not isinstance(found, Unreachable) or time.monotonic() > self._master_due:
                self._master_due = 0.0
        return self._master_due > 0

    def _has_failed(self, reloads: int) -> bool:
        found = read_processes(self._directory.master_socket, _ASK_SECONDS)
        return not isinstance(found, Unreachable) and found.reloads > reloads and found.failed_reloads > 0


def _causes(change: RelayChange, log: str) -> str:
    """Return HAProxy's messages about a failed reload, and which listeners can't be bound, one line each."""
    lines = []
    if words := process.complaints(log):
        lines += ["It says:", words]
    if unbindable := missing(listener.bind for listener in change.listeners):
        lines += ["Can't be bound here:", *(f"{endpoint}: {why}" for endpoint, why in unbindable)]
    return "\n".join(["", *lines])
