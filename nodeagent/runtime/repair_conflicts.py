"""Repairs that another program keeps reverting, and how long the next one waits."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Struct

from nodeagent.backoff import backoff

_Subject = TypeVar("_Subject", bound=Hashable)


class ConflictStatus(Struct, frozen=True):
    """What a repair means.

    Attributes:
        delay: Seconds to wait before this subject is repaired again; 0 if there is no conflict.
        is_news: Whether the conflict began, or the delay grew, with this repair: to be reported now, and not
            again.
        repairs: Repairs of the subject since its last long quiet, this one included.
        within: Seconds since the first of them.
    """

    delay: float = 0.0
    is_news: bool = False
    repairs: int = 1
    within: float = 0.0

    def __str__(self) -> str:
        """Return the text for the log; empty if there is no conflict."""
        if not self.delay:
            return ""
        return (
            f"another program keeps reverting this: {self.repairs} repairs in {self.within:.0f} s; "
            f"the next repair waits {self.delay:g} s"
        )


class _Record(Struct):
    first: float
    last: float
    recent: list[float]
    repairs: int = 0
    level: int = 0


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
        self._records: dict[_Subject, _Record] = {}

    def repaired(self, subject: _Subject) -> ConflictStatus:
        """Take note of a repair of `subject` and judge it. Not for changes that the plan requires."""
        now = self._clock()
        record = self._records.get(subject)
        if record is None or now - record.last >= self._forget:
            record = self._records[subject] = _Record(now, now, [])
        record.last = now
        record.repairs += 1
        record.recent = [*(at for at in record.recent if now - at <= self._window), now][-self._limit :]
        before = self._delay(record)
        if record.level or len(record.recent) >= self._limit:
            record.level += 1
        delay = self._delay(record)
        return ConflictStatus(delay, delay > before, record.repairs, now - record.first)

    def remaining(self, subject: _Subject) -> float:
        """Return the seconds until `subject` may be repaired again; 0 if it may be now."""
        record = self._records.get(subject)
        return 0.0 if record is None else max(0.0, record.last + self._delay(record) - self._clock())

    def conflicting(self) -> frozenset[_Subject]:
        """Return the subjects that another program keeps reverting now."""
        now = self._clock()
        records = self._records.items()
        return frozenset(each for each, one in records if one.level and now - one.last < self._forget)

    def _delay(self, record: _Record) -> float:
        return backoff(record.level, self._first, self._longest) if record.level else 0.0
