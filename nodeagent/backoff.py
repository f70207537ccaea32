"""How long to wait before the next attempt, in all of nodeagent. Pure."""

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
