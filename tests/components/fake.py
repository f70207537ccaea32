"""A component in memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from unittest.mock import Mock

from nodeagent.components.component import Component
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired, DnatRules
from nodeagent.model.facts import UserHostsLine


@dataclass(frozen=True)
class Lines:
    """The state of a component that is a tuple of lines, and the difference from another."""

    lines: object = ()
    after: object = ()
    notes: tuple[str, ...] = ()
    unreadable = text = how = problem = ""
    displaced = False
    repairs = True
    # What the planner and the table ask of the states.
    user_names: Mapping[str, UserHostsLine] = field(default_factory=dict)
    own_names: Mapping[str, frozenset[IPAddress]] = field(default_factory=dict)
    ours = addresses = listeners = ()
    leftover = None
    rules = DnatRules()

    def __bool__(self) -> bool:
        return self.lines != self.after

    def __str__(self) -> str:
        return f"wrote {self.after}" if self else ""


class Part(Component[Lines, Lines]):
    """A component in memory. What other programs do to it rings, as the kernel's notifications do."""

    def __init__(self, part: Callable[[Desired], object]) -> None:
        self.part = part
        self.lines: object = ()
        self.failure = ""
        self.applied = 0
        self.reads = 0
        self._rung = ""
        # What the facts ask of the relay.
        self.port_holders = Mock(return_value={})

    def read(self) -> Lines:
        self.reads += 1
        return Lines(self.lines)

    def diff(self, actual: Lines, desired: Desired, *, keep: bool = False) -> Lines:  # noqa: ARG002
        return Lines(actual.lines, self.part(desired))

    def apply(self, diff: Lines) -> str:
        self.applied += 1
        if self.failure:
            raise ApplyError(self.failure)
        self.lines = diff.after
        return ""

    def revert(self, lines: object = ("another program's",)) -> None:
        """Change it, as another program does."""
        self.lines = lines
        self._rung = "it was written"

    def watch(self) -> Mock:
        def drain() -> str:
            rung, self._rung = self._rung, ""
            return rung

        return Mock(seconds=600.0, fileno=lambda: -1, drain=drain)
