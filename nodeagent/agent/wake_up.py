"""When the agent's loop makes a pass: what wakes it, and how often it may."""

import os
import select
import threading
import time
from collections.abc import Iterable

_AT_ONCE_SECONDS = 0.5
_PACE_SECONDS = 0.02


class WakeUp:
    """What wakes the loop: events of any thread, and signals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # A descriptor and not a condition: a signal handler may run in the loop's own thread between its last
        # check and its wait, and a condition would miss the handler's signal.
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._first: float | None = None

    def trigger(self) -> None:
        """Note a reason for a pass: the cluster changed, or an answer of DNS."""
        with self._lock:
            self._first = time.monotonic() if self._first is None else self._first
        self.wake()

    def wake(self) -> None:
        """End the loop's wait. Takes no lock: a signal handler may call it."""
        os.eventfd_write(self._descriptor, 1)

    @property
    def triggered(self) -> bool:
        """Whether there is a reason for a pass."""
        return self._first is not None

    def take(self) -> float | None:
        """Return when it was triggered first since the last call, if it was."""
        with self._lock:
            first, self._first = self._first, None
            return first

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> None:
        """Wait until it is woken, or one of the descriptors is readable; at most so long."""
        poll = select.poll()
        for descriptor in (self._descriptor, *descriptors):
            poll.register(descriptor, select.POLLIN)
        # Rounded up: a rest below a millisecond would cause a busy loop.
        events = poll.poll(max(0, int(seconds * 1000) + 1))
        if any(descriptor == self._descriptor for descriptor, _ in events):
            os.eventfd_read(self._descriptor)


class Pace:
    """How often a pass is made: at once, but if something changes all the time, in half of the CPU's time."""

    def __init__(self) -> None:
        self._owed = 0.0

    def next_at(self) -> float:
        """Return from when on a pass may begin (monotonic seconds)."""
        return self._owed - _AT_ONCE_SECONDS

    def hold(self, until: float) -> None:
        """Delay the next pass until then."""
        self._owed = max(self._owed, until + _AT_ONCE_SECONDS)

    def made(self, began: float, cpu: float) -> None:
        """Note a pass: when it began, and the seconds of CPU time that it took."""
        # The first pass of a large cluster takes seconds, and the next event should not wait for as many.
        self._owed = max(self._owed, began) + max(_PACE_SECONDS, min(2 * cpu, cpu + _AT_ONCE_SECONDS))
