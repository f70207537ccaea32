"""What is left alone for a while, and how long: what failed, and what another program keeps reverting."""

from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

from msgspec import Struct

from nodeagent.backoff import backoff

_Subject = TypeVar("_Subject", bound=Hashable)


class _Wait(Struct):
    """So many waits in a row, the last of them until then."""

    count: int = 0
    until: float = 0.0
    repairs: tuple[float, ...] = ()
    """When the latest ones were."""


class SubjectBackoff(Generic[_Subject]):
    """Remembers failures and repairs, subject by subject: a component, or a ConfigMap.

    A failure is waited after; so is a repair, once they are a conflict with another program. The longer of
    the two counts.

    Args:
        clock: Monotonic time in seconds.
        limit: So many repairs ...
        window: ... within so many seconds are a conflict.
        first: Seconds of the first wait; each further failure, or repair in a conflict, doubles its own.
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
        self._failures: dict[_Subject, _Wait] = {}
        self._repairs: dict[_Subject, _Wait] = {}

    def failed(self, subject: _Subject) -> None:
        """Have it wait: longer after each failure in a row."""
        self._prolong(self._failures.setdefault(subject, _Wait()))

    def succeeded(self, subject: _Subject) -> bool:
        """Return whether it had failed; it waits no longer for that."""
        return self._failures.pop(subject, None) is not None

    def repaired(self, subject: _Subject) -> float:
        """Take note of a repair of `subject`, also if it did not last; not of a change of the plan.

        Returns:
            Seconds for which it is left alone now; 0 if no other program keeps reverting it.
        """
        now = self._clock()
        wait = self._repairs.get(subject)
        if wait is None or now - wait.repairs[-1] >= self._forget:
            wait = self._repairs[subject] = _Wait()
        wait.repairs = (*wait.repairs, now)[-self._limit :]
        if wait.count or (len(wait.repairs) == self._limit and now - wait.repairs[0] <= self._window):
            self._prolong(wait)
        return self.until(subject) - now if wait.count else 0.0

    def until(self, subject: _Subject) -> float:
        """Return until when it is left alone (the clock's seconds); 0 if it is not."""
        waits = (known[subject].until for known in (self._failures, self._repairs) if subject in known)
        until = max(waits, default=0.0)
        return until if until > self._clock() else 0.0

    @property
    def failing(self) -> AbstractSet[_Subject]:
        """What has failed, and has not succeeded since."""
        return self._failures.keys()

    def conflicting(self) -> frozenset[_Subject]:
        """Return the subjects that another program keeps reverting now."""
        now = self._clock()
        return frozenset(
            subject
            for subject, wait in self._repairs.items()
            if wait.count and now - wait.repairs[-1] < self._forget
        )

    def _prolong(self, wait: _Wait) -> None:
        wait.count += 1
        wait.until = self._clock() + backoff(wait.count, self._first, self._longest)
