"""Waiting for a condition, never for a length of time."""

import time
from collections.abc import Callable

from tests.testbed.errors import WorldError

_POLL_SECONDS = 0.01


def wait_until(
    condition: Callable[[], bool], what: str, *, seconds: float = 10.0, every: float = _POLL_SECONDS
) -> None:
    """Return as soon as a condition holds.

    Args:
        condition: Asked again and again; whatever it raises ends the wait.
        what: The condition in words, for the error.
        seconds: How long to go on asking.
        every: Seconds between two times.

    Raises:
        WorldError: The condition did not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise WorldError(f"gave up after {seconds:g} s waiting for: {what}")
        time.sleep(every)
