"""What is left alone for a while, and how long: what failed, and what another program keeps reverting."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Struct

from nodeagent.backoff import backoff

_Subject = TypeVar("_Subject", bound=Hashable)


class _Record(Struct):
    """Of one subject: its latest repairs, and after how many attempts it waits until when.

    `failing`: the last attempt failed; `reverted`: another program keeps reverting it.
    """

    repairs: list[float]
    attempts: int = 0
    until: float = 0.0
    failing: bool = False
    reverted: bool = False


class LeftAlone(Generic[_Subject]):
    """Remembers failures and repairs, subject by subject: a component, or a ConfigMap.

    Args:
        clock: Monotonic time in seconds.
        limit: So many repairs ...
        window: ... within so many seconds are a conflict with another program.
        first: Seconds of the first wait; each further failure, or repair in a conflict, doubles it.
        longest: Seconds of the longest wait; must be below `forget`.
        forget: Seconds without a repair after which a conflict is over.
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
            raise ValueError("a wait as long as the time to forget would end every conflict by itself")
        self._clock = clock
        self._limit, self._window = limit, window
        self._first, self._longest, self._forget = first, longest, forget
        self._records: dict[_Subject, _Record] = {}

    def failed(self, subject: _Subject) -> None:
        """Have it wait: longer after each failure in a row."""
        record = self._records.setdefault(subject, _Record([]))
        record.failing = True
        self._wait(record, self._clock())

    def succeeded(self, subject: _Subject) -> bool:
        """Return whether it had failed; it waits no longer for that."""
        record = self._records.get(subject)
        if record is None or not record.failing:
            return False
        record.failing = False
        if not record.reverted:
            record.attempts, record.until = 0, 0.0
        return True

    def repaired(self, subject: _Subject) -> float:
        """Take note of a repair of `subject`, also if it did not last; not of a change of the plan.

        Returns:
            Seconds for which it is left alone now; 0 if no other program keeps reverting it.
        """
        now = self._clock()
        record = self._records.setdefault(subject, _Record([]))
        if record.repairs and now - record.repairs[-1] >= self._forget:
            record.repairs, record.reverted = [], False
            record.attempts = record.attempts if record.failing else 0
        record.repairs = [*record.repairs, now][-self._limit :]
        if record.reverted:
            if not record.failing:
                self._wait(record, now)
        elif len(record.repairs) == self._limit and now - record.repairs[0] <= self._window:
            record.reverted, record.attempts = True, 0
            self._wait(record, now)
        return record.until - now if record.reverted else 0.0

    def until(self, subject: _Subject) -> float:
        """Return until when it is left alone (the clock's seconds); 0 if it is not."""
        record = self._records.get(subject)
        return record.until if record is not None and record.until > self._clock() else 0.0

    def has_failed(self, subject: _Subject) -> bool:
        """Return whether it has failed, and has not succeeded since."""
        record = self._records.get(subject)
        return record is not None and record.failing

    @property
    def failing(self) -> bool:
        """Whether anything has failed, and has not succeeded since."""
        return any(record.failing for record in self._records.values())

    def conflicting(self) -> frozenset[_Subject]:
        """Return the subjects that another program keeps reverting now."""
        now = self._clock()
        return frozenset(
            subject
            for subject, one in self._records.items()
            if one.reverted and now - one.repairs[-1] < self._forget
        )

    def _wait(self, record: _Record, now: float) -> None:
        record.attempts += 1
        record.until = now + backoff(record.attempts, self._first, self._longest)
