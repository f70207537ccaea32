"""Whether the agent is alive and whether it is ready, and why not: a value, and the board it hangs on.

Alive: the reconcile loop has given a sign within a limit. A pass may take longer than the loop may idle (a
component waits for HAProxy), so it has a limit of its own. Nothing else counts: restarting an agent because
the API is unavailable or a component fails would not help.

Ready: this agent, as the node's writer, has once applied everything; or it is on standby and says so. A
component that fails later does not revoke that: the agent serves no traffic that unreadiness could divert,
and metrics and logs report it. The answer's lines show each component's state in either case.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from threading import Lock
from types import MappingProxyType

from msgspec import Struct

from nodeagent.printable import printable

DRIFT = "drift"
"""Unnoticed drift, next to the components. It does not count for readiness: only repairs are late."""


class Role(StrEnum):
    """What the agent is on its node."""

    STARTING = "starting"
    WRITER = "writer"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class BeatLimits:
    """How many seconds the loop may give no sign: between passes, and within one."""

    idle: float = 30.0
    busy: float = 120.0


class ComponentHealth(Struct, frozen=True):
    """One component: `known` is false before its first report; `error` is None if all is well.

    `since` is the moment, in the clock's seconds, at which it began to fail.
    """

    known: bool = False
    error: str | None = None
    since: float = 0.0

    def text(self, now: float) -> str:
        """Return `ok`, `not yet`, or the failure and its duration, on one line. Pure."""
        if not self.known:
            return "not yet"
        if self.error is None:
            return "ok"
        lines = (line.strip() for line in self.error.splitlines())
        return f"failed since {now - self.since:.0f} s: {printable('; '.join(filter(None, lines)))}"


class ProbeAnswer(Struct, frozen=True):
    """The answer to a probe: yes or no, and the lines for a person."""

    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """The agent at one moment. `beat` is the loop's last sign, in the clock's seconds.

    `role_note` names another writer. `synced_at`: when this agent last applied everything; None: never yet.
    """

    beat: float
    busy: bool = False
    role: Role = Role.STARTING
    role_note: str = ""
    synced_at: float | None = None
    components: Mapping[str, ComponentHealth] = field(default_factory=lambda: MappingProxyType({}))

    def alive(self, now: float, limits: BeatLimits) -> ProbeAnswer:
        """Return whether the loop gave a sign recently enough. Pure."""
        age = now - self.beat
        bound = limits.busy if self.busy else limits.idle
        doing = "in a pass" if self.busy else "waiting for events"
        if age <= bound:
            return ProbeAnswer(ok=True, text=f"alive: {doing}, last report {age:.0f} s ago\n")
        return ProbeAnswer(
            ok=False, text=f"stuck: {doing}, no report for {age:.0f} s (bound: {bound:.0f} s)\n"
        )

    def ready(self, now: float) -> ProbeAnswer:
        """Return whether the first sync is applied, or the agent is on standby; with each component. Pure."""
        if self.role is Role.STANDBY:
            first = "ready: on standby"
        elif self.role is Role.STARTING:
            first = "not ready: starting"
        elif self.synced_at is None:
            first = "not ready: this agent has not applied all components yet"
        else:
            first = "ready"
        role = f"role: {self.role}" + (f": {printable(self.role_note)}" if self.role_note else "")
        components = (f"{name}: {component.text(now)}" for name, component in self.components.items())
        return ProbeAnswer(ok=first.startswith("ready"), text="\n".join((first, role, *components, "")))


class HealthBoard:
    """The board on which the agent's threads write their state, and from which the HTTP server reads it.

    Args:
        components: those whose state is shown, in this order: the components and others such as `api`.
        limits: how long the loop may give no sign.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        components: Iterable[str],
        limits: BeatLimits = BeatLimits(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._lock = Lock()
        self._health = Health(
            clock(), components=MappingProxyType({name: ComponentHealth() for name in components})
        )

    @property
    def health(self) -> Health:
        """The agent's state now."""
        return self._health

    def alive(self) -> ProbeAnswer:
        """Return the answer of /healthz."""
        return self._health.alive(self._clock(), self._limits)

    def ready(self) -> ProbeAnswer:
        """Return the answer of /readyz."""
        return self._health.ready(self._clock())

    def beat(self) -> None:
        """Report that the loop is alive.

        At least every `Limits.idle` seconds between passes, or within a pass.
        """
        with self._lock:
            self._health = replace(self._health, beat=self._clock())

    def pass_began(self) -> None:
        """Note that the loop begins a pass, which may take up to `Limits.busy` seconds without a sign."""
        with self._lock:
            self._health = replace(self._health, beat=self._clock(), busy=True)

    def pass_ended(self) -> None:
        """Note that the pass has ended, however it ended."""
        with self._lock:
            self._health = replace(self._health, beat=self._clock(), busy=False)

    def component_ok(self, name: str) -> None:
        """Note that the component is in the desired state. Raises KeyError for an unknown component."""
        with self._lock:
            self._set(name, ComponentHealth(known=True))

    def component_failed(self, name: str, error: str) -> None:
        """Note that the component fails with these words; the time counts from the first failure in a row.

        Raises KeyError for a component that is none.
        """
        with self._lock:
            earlier = self._health.components[name]
            since = self._clock() if earlier.error is None else earlier.since
            self._set(name, ComponentHealth(known=True, error=error, since=since))

    def became_writer(self) -> None:
        """Note that this agent writes on the node from now on."""
        with self._lock:
            self._health = replace(self._health, role=Role.WRITER, role_note="")

    def became_standby(self, note: str = "") -> None:
        """Note that another agent writes on the node; `note` says which."""
        with self._lock:
            self._health = replace(self._health, role=Role.STANDBY, role_note=note)

    def synced(self) -> None:
        """Note that this agent has applied everything at this moment."""
        with self._lock:
            self._health = replace(self._health, synced_at=self._clock())

    def _set(self, name: str, component: ComponentHealth) -> None:
        if name not in self._health.components:
            raise KeyError(name)
        self._health = replace(
            self._health, components=MappingProxyType({**self._health.components, name: component})
        )
