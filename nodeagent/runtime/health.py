"""Whether the agent is alive and whether it is ready, and why not.

Alive: the reconcile loop has given a sign within a limit. A pass may take longer than the loop may idle (a
component waits for HAProxy), so it has a limit of its own. Nothing else counts: restarting an agent because
the API is unavailable or a component fails would not help.

Ready: this agent, as the node's writer, has once applied everything; or it is on standby and says so. A
component that fails later does not revoke that: the agent serves no traffic that unreadiness could divert,
and metrics and logs report it. The answer's lines show each component's state in either case.
"""

import time
from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from nodeagent.printable import printable

IDLE_SECONDS = 30.0
"""How long the loop may give no sign between two passes ..."""
BUSY_SECONDS = 120.0
"""... and within one."""

DRIFT = "drift"
"""Unnoticed drift, next to the components. It does not count for readiness: only repairs are late."""


class Role(StrEnum):
    """What the agent is on its node."""

    STARTING = "starting"
    WRITER = "writer"
    STANDBY = "standby"


class ComponentHealth(Struct, frozen=True):
    """One component: `known` is false before its first report; `error` is None if all is well.

    `since` is the moment, in the clock's seconds, at which it began to fail.
    """

    known: bool = False
    error: str | None = None
    since: float = 0.0

    @property
    def reason(self) -> str:
        """The error on one line; empty if all is well."""
        return printable("; ".join(filter(None, map(str.strip, (self.error or "").splitlines()))))

    def text(self, now: float) -> str:
        """Return `ok`, `not yet`, or the failure and its duration, on one line. Pure."""
        if not self.known:
            return "not yet"
        return "ok" if self.error is None else f"failed since {now - self.since:.0f} s: {self.reason}"


class ProbeAnswer(Struct, frozen=True):
    """The answer to a probe: yes or no, and the lines for a person."""

    ok: bool
    text: str


class HealthBoard:
    """The agent's state: its threads write it, and the HTTP server's and the status file's read it.

    Each is written as one value, so that no reader waits, or sees a part of one.

    Attributes:
        components: The state of each, in order.
        role: What the agent is on its node.
        synced_at: When it last applied everything, in the clock's seconds; None: never yet.

    Args:
        components: Those whose state is shown: the components and others such as `api`.
        clock: Seconds that never go back.
    """

    def __init__(self, components: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.components = {name: ComponentHealth() for name in components}
        self.role = Role.STARTING
        self.synced_at: float | None = None
        self._role_note = ""
        # The loop's last sign of life: when it came, and whether it was within a pass.
        self._sign = (clock(), False)

    def alive(self) -> ProbeAnswer:
        """Return the answer of /healthz: whether the loop gave a sign recently enough."""
        at, busy = self._sign
        age = self._clock() - at
        bound, doing = (BUSY_SECONDS, "in a pass") if busy else (IDLE_SECONDS, "waiting for events")
        if age <= bound:
            return ProbeAnswer(ok=True, text=f"alive: {doing}, last report {age:.0f} s ago\n")
        return ProbeAnswer(
            ok=False, text=f"stuck: {doing}, no report for {age:.0f} s (bound: {bound:.0f} s)\n"
        )

    def ready(self) -> ProbeAnswer:
        """Return the answer of /readyz: yes once all is applied, or on standby; with all components."""
        role, note, now = self.role, self._role_note, self._clock()
        if role is Role.STANDBY:
            first = "ready: on standby"
        elif role is Role.STARTING:
            first = "not ready: starting"
        elif self.synced_at is None:
            first = "not ready: this agent has not applied all components yet"
        else:
            first = "ready"
        line = f"role: {role}" + (f": {printable(note)}" if note else "")
        components = (f"{name}: {component.text(now)}" for name, component in self.components.items())
        return ProbeAnswer(ok=first.startswith("ready"), text="\n".join((first, line, *components, "")))

    def beat(self, *, busy: bool = False) -> None:
        """Report that the loop is alive, and whether it begins a pass: for IDLE_SECONDS, or BUSY_SECONDS."""
        self._sign = (self._clock(), busy)

    def component_ok(self, name: str) -> None:
        """Note that the component is in the desired state. Raises KeyError for an unknown component."""
        if name not in self.components:
            raise KeyError(name)
        self.components[name] = ComponentHealth(known=True)

    def component_failed(self, name: str, error: str) -> None:
        """Note a failure with these words; the time counts from the first in a row. Raises KeyError."""
        earlier = self.components[name]
        since = self._clock() if earlier.error is None else earlier.since
        self.components[name] = ComponentHealth(known=True, error=error, since=since)

    def became_writer(self) -> None:
        """Note that this agent writes on the node from now on."""
        self._role_note, self.role = "", Role.WRITER

    def became_standby(self, note: str = "") -> None:
        """Note that another agent writes on the node; `note` says which."""
        self._role_note, self.role = note, Role.STANDBY

    def synced(self) -> None:
        """Note that this agent has applied everything at this moment."""
        self.synced_at = self._clock()
