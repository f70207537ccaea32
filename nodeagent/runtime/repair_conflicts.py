"""Repairs that another program keeps reverting, and how long the next one waits."""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from msgspec import Struct

from nodeagent.backoff import backoff

_Subject = TypeVar("_Subject", bound=Hashable)

_BRIEF_SECONDS = 0.2
"""The delay, which does not grow, if nodeagent's rules were only displaced."""


class ConflictStatus(Struct, frozen=True):
    """What a repair means.

    Attributes:
        delay: Seconds to wait before this subject is repaired again; 0 if there is no conflict.
        conflicting: Whether another program reverts nodeagent's repairs.
        is_news: Whether the conflict began, or the delay grew, with this repair: to be reported now, and not
            again.
        repairs: Repairs of the subject since its last long quiet, this one included.
        within: Seconds since the first of them.
    """

    delay: float
    conflicting: bool
    is_news: bool
    repairs: int
    within: float

    def __str__(self) -> str:
        """Return the text for the log; empty if there is no conflict."""
        if not self.conflicting:
            return ""
        return (
            f"another program keeps reverting this: {self.repairs} repairs in {self.within:.0f} s; "
            f"the next repair waits {self.delay:g} s"
        )


@dataclass(slots=True)
class _Record:
    first: float
    last: float
    repairs: int = 0
    level: int = 0
    recent: deque[float] = field(default_factory=deque)


class RepairConflicts(Generic[_Subject]):
    """Remembers repairs, subject by subject: a component, or a ConfigMap.

    Args:
        clock: Monotonic time in seconds.
        limit: So many repairs ...
        window: ... within so many seconds are a conflict.
        first: Seconds of the first delay; each further repair doubles it.
        longest: Seconds of the longest delay; must be below `forget`.
        forget: Seconds without a repair after which a subject starts afresh.
    """

    def __init__(  # noqa: PLR0913 - each is one figure of the policy
        self,
        clock: Callable[[], float],
        *,
        limit: int = 5,
        window: float = 60.0,
        first: float = 1.0,
        longest: float = 300.0,
        forget: float = 600.0,
    ) -> None:
        if longest >= forget:
            raise ValueError("a delay as long as the time to forget would end every conflict by itself")
        self._clock = clock
        self._limit, self._window = limit, window
        self._first, self._longest, self._forget = first, longest, forget
        self._records: dict[tuple[_Subject, bool], _Record] = {}

    def repaired(self, subject: _Subject, *, displaced: bool = False) -> ConflictStatus:
        """Take note of a repair of `subject` and judge it. Not for changes that the plan requires.

        Args:
            subject: What was repaired.
            displaced: Whether other rules were merely inserted before nodeagent's, as kube-proxy's are
                whenever it starts. Two programs that both want the top undo nothing of each other's, and
                waiting would leave nodeagent's rules without effect: the delay stays brief, which is enough
                to keep such a race from using the whole processor.
        """
        key = subject, displaced
        now = self._clock()
        record = self._records.get(key)
        if record is None or now - record.last >= self._forget:
            record = self._records[key] = _Record(now, now)
        record.last = now
        record.repairs += 1
        record.recent.append(now)
        while len(record.recent) > self._limit or now - record.recent[0] > self._window:
            record.recent.popleft()
        before, often = record.level, len(record.recent) >= self._limit
        if displaced:
            record.level = int(often)
        elif before or often:
            record.level += 1
        delay = self._delay(key, record.level)
        is_news = delay > self._delay(key, before)
        return ConflictStatus(delay, record.level > 0, is_news, record.repairs, now - record.first)

    def remaining(self, subject: _Subject) -> float:
        """Return the seconds until `subject` may be repaired again; 0 if it may be now."""
        key = subject, False
        record = self._records.get(key)
        if record is None:
            return 0.0
        return max(0.0, record.last + self._delay(key, record.level) - self._clock())

    def conflicting(self) -> frozenset[_Subject]:
        """Return the subjects that another program keeps reverting now."""
        now = self._clock()
        return frozenset(
            subject
            for (subject, _), record in self._records.items()
            if record.level and now - record.last < self._forget
        )

    def _delay(self, key: tuple[_Subject, bool], level: int) -> float:
        if level == 0:
            return 0.0
        return _BRIEF_SECONDS if key[1] else backoff(level, self._first, self._longest)
