"""The durations of list and watch, and of the waits between attempts."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from nodeagent.backoff import backoff
from nodeagent.sources.kubernetes.connection import CONNECT_TIMEOUT


@dataclass(frozen=True, slots=True)
class Timing:
    """The threads' durations; all in seconds.

    Attributes:
        list_timeout: for one page of a list.
        connect_timeout: until a connection is open.
        idle_timeout: without a byte on a watch, after which it counts as dead. Bookmarks arrive about once
            a minute (KEP-956).
        watch_seconds: the server is asked to end a watch after a random time in this range, so that nodes
            don't reconnect together, and move to another API server now and then.
        shortest_watch: a watch that ends sooner without a line is a failure, to be followed by a wait.
        backoff: the first wait after a failure, and the longest.
        refused: a range of seconds, after which an optional kind that was denied is requested again.
        discovery: a range of seconds, after which the server is asked again which optional kinds it has.
        optional_wait: how long the first snapshot waits for optional kinds that neither arrive nor are
            denied.
        streaming: whether a list is requested as the beginning of a watch (KEP-3157), if the server can.
        calm: if the last list was that long ago, a lost history (410) leads to a new list at once; one that
            is lost repeatedly waits like any failure.
    """

    list_timeout: float = 60.0
    connect_timeout: float = CONNECT_TIMEOUT
    idle_timeout: float = 150.0
    watch_seconds: tuple[int, int] = (300, 600)
    shortest_watch: float = 1.0
    backoff: tuple[float, float] = (0.5, 30.0)
    refused: tuple[float, float] = (240.0, 360.0)
    discovery: tuple[float, float] = (60.0, 90.0)
    optional_wait: float = 10.0
    calm: float = 30.0
    streaming: bool = True


# Waits between attempts to reach the API server.


_LONGEST_RETRY_AFTER = 300.0
"""Seconds. A proxy's `Retry-After: 86400` must not leave a node out of date for a day."""


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
