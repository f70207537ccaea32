"""What wakes the loop of a process: events of any thread, and signals."""

import os
import select
import threading
import time
from collections.abc import Callable, Iterable


class WakeUp:
    """Triggered by any thread, and waited for by one loop.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # A descriptor and not a condition: a signal handler may run in the loop's own thread between its last
        # check and its wait, and a condition would miss the handler's signal.
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._first: float | None = None

    def trigger(self) -> None:
        """Note that something changed on which a pass rests: the cluster, or an answer of DNS."""
        with self._lock:
            self._first = self._clock() if self._first is None else self._first
        self.wake()

    def wake(self) -> None:
        """End the loop's wait without a reason for a pass: a signal arrived, or the writer changed.

        Takes no lock: a signal handler may call it.
        """
        os.eventfd_write(self._descriptor, 1)

    @property
    def triggered(self) -> bool:
        """Whether there is a reason for a pass."""
        return self._first is not None

    def take(self) -> float | None:
        """Return when it was triggered first since the last call; None if it was not."""
        with self._lock:
            first, self._first = self._first, None
            return first

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> None:
        """Wait until it is triggered or woken, or one of the descriptors is readable; at most so long."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        # Rounded up: a rest below a millisecond would cause a busy loop.
        found = poll.poll(max(0, int(seconds * 1000) + 1))
        if any(descriptor == self._descriptor for descriptor, _ in found):
            os.eventfd_read(self._descriptor)
