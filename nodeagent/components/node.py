"""The components that a configuration requires, their actual state, and the status of listeners."""

import math
import operator
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, cast

from msgspec import Struct

from nodeagent.components.addresses import Addresses
from nodeagent.components.component import (
    PROVIDERS,
    Component,
    ComponentName,
    Diff,
    DiffT,
    State,
    StateT,
    Watch,
)
from nodeagent.components.dnat.component import Dnat
from nodeagent.components.hosts.component import Hosts
from nodeagent.components.relay.component import Relay
from nodeagent.config.options import Config
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired, Listener

ON_LINUX = platform.system() == "Linux"
"""Elsewhere, commands still decide by the cluster's objects."""
_LONGEST_SECONDS = 600.0
"""The longest a state is trusted. What no notification reports is found that late."""
_UNWATCHED_SECONDS = 10.0
"""So often a component is read of which the kernel gives no notifications now."""


class Components(Struct, frozen=True):
    """The four components of the node."""

    addresses: Addresses
    relay: Relay
    dnat: Dnat
    hosts: Hosts


def build_components(config: Config, *, adopt: bool) -> Components:
    """Make the components; changes nothing. Raises ApplyError for a hosts file not to be written."""
    relay = config.relay
    return Components(
        addresses=Addresses(relay.interface, (relay.ipv4, relay.ipv6)),
        relay=Relay(relay),
        dnat=Dnat(config.dnat.backend),
        hosts=Hosts(
            Path(config.hosts.file),
            (relay.ipv4, relay.ipv6),
            Path(relay.run_dir),
            adopt=adopt,
            enabled=config.hosts.enabled,
        ),
    )


class Applied(Struct, frozen=True):
    """What became of a difference; `displaced` and `repairs` are as in `Diff`."""

    text: str = ""
    failure: str = ""
    displaced: bool = False
    repairs: bool = True


class UndoneError(ApplyError):
    """A change was accepted, but `left` is not there: another program changes the component, too."""

    def __init__(self, left: str) -> None:
        super().__init__(
            "the change was accepted, but the node is not in the desired state: another program changes it, "
            "too, or does not write what it was given. It is tried again, ever less often; the log names "
            f"the other program if the kernel does. What still differs:\n{left}"
        )


class CachedState(Generic[StateT, DiffT]):
    """A component and its actual state, which holds from its reading until something may have changed it."""

    def __init__(
        self, component: Component[StateT, DiffT], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.component = component
        self._clock = clock
        self._state: StateT | None = None
        self._watch: Watch | None = None
        self._opened_at = -math.inf
        self._look_at = math.inf
        """When to look even if nothing is reported; infinite if it is not to be watched."""
        self.error = ""
        """Why the component is not watched; empty if it is, or need not be."""

    def state(self) -> StateT:
        if not ON_LINUX:
            raise ApplyError("this machine does not run Linux, so nodeagent has nothing on it to read")
        if self._state is None:
            self._state = self.component.read()
        return self._state

    def diff(self, desired: Desired, *, keep: bool = False) -> DiffT:
        return self.component.diff(self.state(), desired, keep=keep)

    def ready(self, desired: Desired) -> Mapping[Endpoint, str]:
        return self.component.ready(self.state(), desired)

    def apply(self, desired: Desired, *, keep: bool = False) -> Applied:
        """Apply the difference, and read what it left. Raises UndoneError, or ApplyError."""
        diff = self.diff(desired, keep=keep)
        if not diff:
            return Applied(failure=diff.problem)
        self._state = None
        try:
            failure = "\n".join(filter(None, (diff.problem, self.component.apply(diff))))
        finally:
            self._drain()  # of this change's notifications: what others do after the reading notifies again
        left = self.diff(desired, keep=keep)
        if left and left.repairs and not failure:
            self._state = None
            raise UndoneError(str(left))
        missing = {*str(left).splitlines()}
        done = "\n".join(line for line in str(diff).splitlines() if line not in missing)
        return Applied(done, failure, diff.displaced, diff.repairs)

    def start_watching(self) -> None:
        """Let the state hold from now on, until `notice` sees that something has happened."""
        self._look_at = 0.0

    def stop_watching(self) -> None:
        self._close()
        self._look_at = math.inf

    def forget(self) -> None:
        """Have the state read again: something that is not reported may have changed."""
        self._state = None

    def fileno(self) -> int:
        """Return the descriptor to poll before the next `notice`; -1 for none."""
        return self._watch.fileno() if self._watch else -1

    def due_at(self) -> float:
        """Return when `notice` is to be called even if nothing happens (the clock's seconds)."""
        return min(self._look_at, self._clock() + self._watch.seconds) if self._watch else self._look_at

    def notice(self) -> str:
        """Take the notifications; forget the state if it may have changed; return why, for a person."""
        if self._watch is None:
            self._state = None
        now, seen = self._clock(), self._drain()
        if now >= self._look_at:
            seen = seen or ("found by a regular look" if self._watch else self._open(now))
        if seen and self._watch:
            # Not only when it is read: what can't be read is looked at no more often.
            self._state, self._look_at = None, now + _LONGEST_SECONDS
        return seen

    def _open(self, now: float) -> str:
        self._opened_at = now
        try:
            self._watch = self.component.watch()
        except Exception as error:  # noqa: BLE001 - of whatever cause: without a watch, the state is read more often
            self._look_at, self.error = now + _UNWATCHED_SECONDS, _words(error)
            return "found by a regular look"
        interrupted, self.error = self.error, ""
        return f"it could not be watched ({interrupted})" if interrupted else "found by a first look"

    def _drain(self) -> str:
        try:
            return self._watch.drain() if self._watch else ""
        except Exception as error:  # noqa: BLE001 - as above
            self._close()
            self.error = _words(error)
            return f"the watch was interrupted: {self.error}"

    def _close(self) -> None:
        watch, self._watch, self._state = self._watch, None, None
        # One that is interrupted soon is not opened again at once, over and over.
        self._look_at = self._opened_at + _UNWATCHED_SECONDS
        if watch is not None:
            watch.close()


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) if isinstance(error, OSError | ApplyError) else f"{type(error).__name__}: {error}"


class ActualState:
    """The actual state of each component."""

    def __init__(self, components: Components, clock: Callable[[], float] = time.monotonic) -> None:
        self.components = components
        self.addresses = CachedState(components.addresses, clock)
        self.relay = CachedState(components.relay, clock)
        self.dnat = CachedState(components.dnat, clock)
        self.hosts = CachedState(components.hosts, clock)
        self._ready_of: tuple[list[State], tuple[Listener, ...]] | None = None

    def __getitem__(self, name: ComponentName) -> CachedState[State, Diff]:
        return cast("CachedState[State, Diff]", getattr(self, name))

    def ready(self, desired: Desired) -> frozenset[Endpoint]:
        """Return the listeners that work. Once all do, that holds as long as the states do."""
        wanted = frozenset(listener.bind for listener in desired.listeners)
        try:
            states = [self[name].state() for name in PROVIDERS]
        except ApplyError:
            return frozenset()
        if self._ready_of is not None:
            known, listeners = self._ready_of
            if all(map(operator.is_, known, states)) and listeners == desired.listeners:
                return wanted
        ready = wanted.intersection(*(self[name].ready(desired) for name in PROVIDERS))
        self._ready_of = (states, desired.listeners) if ready == wanted else None
        return ready
