"""How long to wait before the next attempt, in all of nodeagent."""

import random
from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

from msgspec import Struct

_LONGEST_RETRY_AFTER = 300.0
"""Seconds. A proxy's `Retry-After: 86400` must not leave a node out of date for a day."""
_MOST_DOUBLINGS = 64
"""A failure that lasts for months must not overflow a float."""
_Subject = TypeVar("_Subject", bound=Hashable)


def backoff(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after that many failures in a row: `first`, doubled by each further one."""
    return min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest)


class Backoff:
    """Doubling waits, in seconds, with jitter, so that a cluster's nodes do not all reconnect at once."""

    def __init__(
        self, shortest: float, longest: float, fraction: Callable[[], float] = random.random
    ) -> None:
        self._shortest, self._longest, self._fraction = shortest, longest, fraction
        self._failures = 0

    def reset(self) -> None:
        """Start with the shortest wait again: something succeeded."""
        self._failures = 0

    def next(self, retry_after: float | None = None) -> float:
        """Return the seconds to wait now, between half and all of the step, and double the step.

        If the server asks for `retry_after` seconds, up to a tenth is added as jitter.
        """
        self._failures += 1
        wait = backoff(self._failures, self._shortest, self._longest) * (0.5 + self._fraction() / 2)
        if retry_after is None:
            return wait
        return max(wait, min(retry_after, _LONGEST_RETRY_AFTER) * (1 + self._fraction() / 10))


class _Wait(Struct):
    """So many waits in a row, the last of them until then; and when the latest writes were."""

    count: int = 0
    until: float = 0.0
    writes: tuple[float, ...] = ()


class SubjectBackoff(Generic[_Subject]):
    """What waits, and how long: what failed, and what others make nodeagent write again and again.

    They are other programs, which revert a component, and tenants, whose objects or DNS answers change.

    `limit` writes within `window` seconds are too many. A first wait has `first` seconds; each further
    failure, or write, doubles its own, up to `longest`. After `forget` seconds without a write, the next ones
    are made at once again. `clock` is monotonic.
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
        self._writes: dict[_Subject, _Wait] = {}

    def failed(self, subject: _Subject) -> None:
        """Have it wait: longer after each failure in a row."""
        self._prolong(self._failures.setdefault(subject, _Wait()))

    def succeeded(self, subject: _Subject) -> bool:
        """Return whether it had failed; it waits no longer for that."""
        return self._failures.pop(subject, None) is not None

    def wrote(self, subject: _Subject) -> float:
        """Note a write that others caused, also if it did not last; return the seconds until the next one."""
        now = self._clock()
        known = self._writes
        self._writes = {key: known[key] for key in known if now - known[key].writes[-1] < self._forget}
        wait = self._writes.setdefault(subject, _Wait())
        wait.writes = (*wait.writes, now)[-self._limit :]
        if wait.count or (len(wait.writes) == self._limit and now - wait.writes[0] <= self._window):
            self._prolong(wait)
        return self.until(subject) - now if wait.count else 0.0

    def until(self, subject: _Subject) -> float:
        """Return until when it waits, for the longer of both reasons (the clock's seconds); 0: not now."""
        return self.waiting().get(subject, 0.0)

    def waiting(self) -> Mapping[_Subject, float]:
        """Return what waits now, and until when."""
        now, until = self._clock(), dict[_Subject, float]()
        for known in (self._failures, self._writes):
            for subject, wait in known.items():
                if wait.until > now:
                    until[subject] = max(wait.until, until.get(subject, 0.0))
        return until

    @property
    def failing(self) -> AbstractSet[_Subject]:
        """What has failed, and has not succeeded since."""
        return self._failures.keys()

    def conflicting(self) -> frozenset[_Subject]:
        """Return the subjects for which too much was written lately: another program keeps reverting them."""
        now = self._clock()
        return frozenset(
            subject
            for subject, wait in self._writes.items()
            if wait.count and now - wait.writes[-1] < self._forget
        )

    def _prolong(self, wait: _Wait) -> None:
        wait.count += 1
        wait.until = self._clock() + backoff(wait.count, self._first, self._longest)
