"""Collects what a watcher says, and runs it for the length of a test."""

import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nodeagent.agent.drift.watcher import Watcher
from nodeagent.components.component import ComponentName

SEEN_SECONDS = 1.0
"""Drift is to be repaired within a second, so it must be seen within one."""


class Recorder:
    """An `on_drift` that keeps what it is called with."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[ComponentName, str, float]] = queue.Queue()

    def __call__(self, component: ComponentName, what: str) -> None:
        """Keep the call."""
        self._calls.put((component, what, time.monotonic()))

    def next(self, seconds: float = SEEN_SECONDS) -> str:
        """What is said first; "nothing" when nothing is within so many seconds."""
        try:
            return self._calls.get(timeout=seconds)[1]
        except queue.Empty:
            return "nothing"

    def until(self, word: str, seconds: float = SEEN_SECONDS) -> list[str]:
        """What is said up to the first call that holds `word`; fails when none does in time."""
        deadline = time.monotonic() + seconds
        said: list[str] = []
        while not said or word not in said[-1]:
            said.append(self.next(max(0.0, deadline - time.monotonic())))
            assert said[-1] != "nothing", f"nobody said {word!r} within {seconds} s, only {said[:-1]}"
        return said


@contextmanager
def running(watcher: Watcher[Any, Any]) -> Iterator[None]:
    """Start a watcher, go on when it watches, and see to it that it stops within a second."""
    watcher.start()
    try:
        deadline = time.monotonic() + 5
        while not watcher.state().running:
            assert time.monotonic() < deadline, watcher.state()
            time.sleep(0.005)
        watcher.start()  # changes nothing
        yield
    finally:
        began = time.monotonic()
        watcher.stop()
        watcher.stop()
        # It promises a second; the rest is for a machine that is busy with other tests.
        assert time.monotonic() - began < 3
    assert watcher.state().error == "stopped"
