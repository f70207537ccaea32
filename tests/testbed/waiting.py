"""Waiting for a condition, never for a length of time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Callable

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
