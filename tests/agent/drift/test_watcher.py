import errno
import os
import threading
import time

import pytest

from nodeagent.agent.drift.watcher import Watcher
from tests.agent.drift.recorder import Recorder, running


class Event:
    """A source that a test rings."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self.descriptor

    def close(self) -> None:
        """Nothing: what happens while no one listens is kept."""


class Scripted(Watcher[None, Event]):
    """Watches a descriptor; fails on request."""

    component = "dnat"

    def __init__(self, on_drift: Recorder) -> None:
        super().__init__(on_drift)
        self.event = Event()
        self.failures: list[Exception] = []
        self.refusals: list[Exception] = []
        self.opened = 0
        self.seen = 0

    def expect(self, state: None) -> None:
        """Nothing."""

    def _open(self) -> Event:
        self.opened += 1
        if self.refusals:
            raise self.refusals.pop(0)
        return self.event

    def _read(self, source: Event) -> None:
        if self.failures:
            raise self.failures.pop(0)
        try:
            self.seen += os.eventfd_read(source.descriptor)
        except BlockingIOError:
            return

    def _judge(self, _: Event) -> str:
        seen, self.seen = self.seen, 0
        return f"{seen} events" if seen else ""

    def happen(self) -> None:
        """Make one event."""
        os.eventfd_write(self.event.descriptor, 1)


@pytest.mark.parametrize("failure", [OSError(errno.EBADF, "bad descriptor"), KeyError("a bug")])
def test_a_watcher_that_fails_says_so_and_restarts(failure: Exception) -> None:
    said = Recorder()
    watcher = Scripted(said)
    with running(watcher):
        watcher.failures.append(failure)
        watcher.happen()
        assert said.next().startswith("the watch was interrupted: ")
        assert said.next().startswith("the watch was interrupted and was restarted (")
        # What happened meanwhile, and what happens from then on, is reported as usual.
        watcher.happen()
        assert said.until("events")
    assert watcher.opened == 2


def test_one_that_is_not_available_shows_it_only_in_its_state_and_keeps_trying() -> None:
    said = Recorder()
    watcher = Scripted(said)
    watcher.refusals += [PermissionError(errno.EPERM, "Operation not permitted")] * 2
    watcher.start()
    deadline = time.monotonic() + 2
    while watcher.state().error != "Operation not permitted":
        assert time.monotonic() < deadline
    assert not watcher.state().running
    assert said.next(2.0) == ("the watch was interrupted and was restarted (Operation not permitted)")
    assert watcher.opened == 3
    watcher.stop()


def test_stopping_does_not_wait_for_a_pause_between_tries() -> None:
    watcher = Scripted(Recorder())
    watcher.refusals += [OSError(errno.EMFILE, "too many")] * 100
    watcher.start()
    while watcher.opened < 4:
        threading.Event().wait(0.01)
    began = time.monotonic()
    watcher.stop()
    assert time.monotonic() - began < 0.5


def test_quiet_blocks_hold_calls_back_until_the_last_has_ended() -> None:
    said = Recorder()
    watcher = Scripted(said)
    with running(watcher):
        with watcher.quiet():
            with watcher.quiet():
                watcher.happen()
            watcher.happen()
            assert said.next(0.1) == "nothing"
        assert said.next() == "2 events"
