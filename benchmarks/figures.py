"""Numbers with their unit and, where there is one, their goal. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Goal:
    """The column that must not exceed a limit."""

    column: str
    limit: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a table.

    Attributes:
        part: the table.
        what: what was measured.
        unit: of all columns but `events`.
        names: how many names were in the hosts file meanwhile; None if it does not matter.
        columns: the numbers by their heading.
        goal: what is asked for.
    """

    part: str
    what: str
    unit: str
    names: int | None
    columns: Mapping[str, float]
    goal: Goal | None = field(default=None)

    @property
    def meets_goal(self) -> bool | None:
        """Whether the goal is met; None without one."""
        return None if self.goal is None else self.columns[self.goal.column] <= self.goal.limit


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` (0..1) of all do not exceed: one that was really measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Columns for durations, in milliseconds."""
    milliseconds = [value * 1000 for value in seconds]
    return {
        "events": len(milliseconds),
        "best": min(milliseconds),
        "p50": percentile(milliseconds, 0.5),
        "p99": percentile(milliseconds, 0.99),
        "worst": max(milliseconds),
    }
