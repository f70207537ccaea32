"""Waiting for a condition, never for a length of time."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.testbed.errors import WorldError

_POLL_SECONDS = 0.01


def wait_until(
    condition: Callable[[], bool], what: str, *, seconds: float = 10.0, every: float = _POLL_SECONDS
) -> None:
    """Return as soon as a condition holds; raises a WorldError with `what` if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise WorldError(f"gave up after {seconds:g} s waiting for: {what}")
        time.sleep(every)


@contextmanager
def meanwhile(step: Callable[[], object], pause: float = 0.0) -> Iterator[None]:
    """Do something again and again in a thread, as long as this lasts; raises in the end what that raised."""
    ending = threading.Event()

    def repeat() -> None:
        while not ending.wait(pause):
            step()

    with ThreadPoolExecutor(1) as thread:
        repeating = thread.submit(repeat)
        try:
            yield
        finally:
            ending.set()
        repeating.result()
