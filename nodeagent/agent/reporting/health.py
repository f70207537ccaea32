"""Whether the agent is alive and whether it is ready, and why not: a value, and the board it hangs on.

Alive: the reconcile loop has given a sign within a bound. A pass may take longer than the loop may idle (an
applier waits for HAProxy), so it has a bound of its own. Nothing else counts: to restart an agent because
the API is away or a part fails would help nobody.

Ready: this agent, as the node's writer, has once applied everything; or it stands by and says so. A part
that fails later does not take that back: the agent serves no traffic that unreadiness could divert, and
metrics and logs tell it. The answer's lines show each part's state in either case.
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
"""The part for unnoticed drift. It does not count for readiness: the node is served, repairs are late."""


class Role(StrEnum):
    """What the agent is on its node."""

    STARTING = "starting"
    WRITER = "writer"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class BeatLimits:
    """For how many seconds the loop may give no sign: between passes, and within one."""

    idle: float = 30.0
    busy: float = 120.0


class PartHealth(Struct, frozen=True):
    """One part: `known` is false before anything was told of it; `error` is None when all is well.

    `since` is the moment, in the clock's seconds, at which it began to fail.
    """

    known: bool = False
    error: str | None = None
    since: float = 0.0

    def text(self, now: float) -> str:
        """Pure: `ok`, `not yet`, or what fails and for how long, on one line."""
        if not self.known:
            return "not yet"
        if self.error is None:
            return "ok"
        lines = (line.strip() for line in self.error.splitlines())
        return f"failed since {now - self.since:.0f} s: {printable('; '.join(filter(None, lines)))}"


class ProbeAnswer(Struct, frozen=True):
    """What a probe is told: yes or no, and the lines for a person."""

    ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """The agent at one moment. `beat` is the loop's last sign, in the clock's seconds.

    `role_note` says who else writes. `synced_at`: when this agent last applied everything; None: never yet.
    """

    beat: float
    busy: bool = False
    role: Role = Role.STARTING
    role_note: str = ""
    synced_at: float | None = None
    parts: Mapping[str, PartHealth] = field(default_factory=lambda: MappingProxyType({}))

    def alive(self, now: float, limits: BeatLimits) -> ProbeAnswer:
        """Pure: whether the loop gave a sign lately enough."""
        age = now - self.beat
        bound = limits.busy if self.busy else limits.idle
        doing = "in a pass" if self.busy else "waiting for events"
        if age <= bound:
            return ProbeAnswer(ok=True, text=f"alive: {doing}, last report {age:.0f} s ago\n")
        return ProbeAnswer(
            ok=False, text=f"stuck: {doing}, no report for {age:.0f} s (bound: {bound:.0f} s)\n"
        )

    def ready(self, now: float) -> ProbeAnswer:
        """Pure: whether this agent's first sync is applied, or it stands by; then a line for each part."""
        if self.role is Role.STANDBY:
            first = "ready: on standby"
        elif self.role is Role.STARTING:
            first = "not ready: starting"
        elif self.synced_at is None:
            first = "not ready: this agent has not applied all components yet"
        else:
            first = "ready"
        role = f"role: {self.role}" + (f": {printable(self.role_note)}" if self.role_note else "")
        parts = (f"{name}: {part.text(now)}" for name, part in self.parts.items())
        return ProbeAnswer(ok=first.startswith("ready"), text="\n".join((first, role, *parts, "")))


class HealthBoard:
    """Where the agent's threads write how they are, and the HTTP server reads it.

    Args:
        parts: whose state is shown, in this order: the components' and, say, `api`.
        limits: bounds on the loop's silence.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        parts: Iterable[str],
        limits: BeatLimits = BeatLimits(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._lock = Lock()
        self._health = Health(clock(), parts=MappingProxyType({name: PartHealth() for name in parts}))

    @property
    def health(self) -> Health:
        """How the agent is now."""
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
        """Note that the pass is over, however it ended."""
        with self._lock:
            self._health = replace(self._health, beat=self._clock(), busy=False)

    def part_ok(self, name: str) -> None:
        """Note that the part is in the desired state. Raises KeyError for a part that is none."""
        with self._lock:
            self._set(name, PartHealth(known=True))

    def part_failed(self, name: str, error: str) -> None:
        """Note that the part fails with these words; the time counts from the first failure in a row.

        Raises KeyError for a part that is none.
        """
        with self._lock:
            earlier = self._health.parts[name]
            since = self._clock() if earlier.error is None else earlier.since
            self._set(name, PartHealth(known=True, error=error, since=since))

    def became_writer(self) -> None:
        """Note that this agent writes on the node from now on."""
        with self._lock:
            self._health = replace(self._health, role=Role.WRITER, role_note="")

    def became_standby(self, note: str = "") -> None:
        """Another agent writes on the node; `note` says which."""
        with self._lock:
            self._health = replace(self._health, role=Role.STANDBY, role_note=note)

    def synced(self) -> None:
        """Everything is applied, by this agent, at this moment."""
        with self._lock:
            self._health = replace(self._health, synced_at=self._clock())

    def _set(self, name: str, part: PartHealth) -> None:
        if name not in self._health.parts:
            raise KeyError(name)
        self._health = replace(self._health, parts=MappingProxyType({**self._health.parts, name: part}))
