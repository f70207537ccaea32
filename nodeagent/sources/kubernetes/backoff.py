"""Waits between tries to reach the API server."""

import random
from collections.abc import Callable

from nodeagent.backoff import backoff

_LONGEST_RETRY_AFTER = 300.0
"""Seconds. A proxy's `Retry-After: 86400` must not leave a node a day behind."""


class Backoff:
    """Doubling waits with jitter, so that a cluster's nodes do not come back all at once.

    Args:
        shortest: seconds of the first wait's upper end.
        longest: seconds that no wait exceeds, unless the server asks for more.
        fraction: gives a number in 0..1 at random.
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
        """Begins with the shortest wait again: something went well."""
        self._failures = 0

    def next(self, retry_after: float | None = None) -> float:
        """Gives the seconds to wait now, between half and all of the current step, and doubles the step.

        Args:
            retry_after: seconds the server asks for; a tenth more at most is added as jitter.
        """
        self._failures += 1
        wait = backoff(self._failures, self._shortest, self._longest) * (0.5 + self._fraction() / 2)
        if retry_after is None:
            return wait
        return max(wait, min(retry_after, _LONGEST_RETRY_AFTER) * (1 + self._fraction() / 10))
