"""How long to wait before the next attempt, in all of nodeagent."""

import random
from collections.abc import Callable

_LONGEST_RETRY_AFTER = 300.0
"""Seconds. A proxy's `Retry-After: 86400` must not leave a node out of date for a day."""
_MOST_DOUBLINGS = 64
"""A failure that lasts for months must not overflow a float."""


def backoff(failures: int, first: float, longest: float) -> float:
    """Return the seconds to wait after that many failures in a row: `first`, doubled by each further one.

    Args:
        failures: One or more.
        first: Seconds after the first failure.
        longest: Seconds that no wait exceeds.
    """
    return min(first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest)


class Backoff:
    """Doubling waits with jitter, so that a cluster's nodes do not all reconnect at once.

    Args:
        shortest: seconds of the first wait's upper end.
        longest: seconds that no wait exceeds, unless the server asks for more.
        fraction: returns a random number in 0..1.
    """

    def __init__(
        self,
        shortest: float,
        longest: float,
        fraction: Callable[[], float] = random.random,
    ) -> None:
        self._shortest = shortest
        self._longest = longest
        self._fraction = fraction
        self._failures = 0

    def reset(self) -> None:
        """Start with the shortest wait again: something succeeded."""
        self._failures = 0

    def next(self, retry_after: float | None = None) -> float:
        """Return the seconds to wait now, between half and all of the current step, and double the step.

        Args:
            retry_after: seconds the server asks for; up to a tenth is added as jitter.
        """
        self._failures += 1
        wait = backoff(self._failures, self._shortest, self._longest) * (0.5 + self._fraction() / 2)
        if retry_after is None:
            return wait
        return max(wait, min(retry_after, _LONGEST_RETRY_AFTER) * (1 + self._fraction() / 10))
