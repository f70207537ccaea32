"""What triggers a pass, gathered from any thread and taken by the loop; and when the pass begins."""

import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from nodeagent.components.component import ComponentName

_BURST_EVENTS = 20
_QUIET_SECONDS = 0.05
_LONGEST_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TriggerBatch:
    """The triggers since the last pass: events of the cluster, and drift by component with the observation.

    `first` is when the first of them arrived (monotonic seconds), None if there are none; `latest` is when
    the latest did.
    """

    events: int = 0
    drift: Mapping[ComponentName, str] = field(default_factory=dict)
    first: float | None = None
    latest: float = 0.0


def seconds_until_pass(waiting: TriggerBatch, last_pass: tuple[float, float], now: float) -> float:
    """Return how long to wait before the next pass begins; 0 or less means now.

    A burst may continue until it is quiet for 50 ms, but no longer than half a second. After a pass that took
    t seconds, t are left free, so that passes take no more than half of the time, however many events arrive.
    That is half a second at most, too: only a first pass, or a full resync, takes longer, and an event after
    it should not wait for seconds.

    Args:
        waiting: What waits.
        last_pass: When the last pass began and ended (monotonic seconds).
        now: The same clock now.
    """
    began, ended = last_pass
    start = ended + min(ended - began, _LONGEST_SECONDS)
    if waiting.first is not None and waiting.events >= _BURST_EVENTS:
        start = max(start, min(waiting.latest + _QUIET_SECONDS, waiting.first + _LONGEST_SECONDS))
    return start - now


class Triggers:
    """A mailbox for one loop. Every method may be called from any thread.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # A descriptor and not a condition: a signal handler may run in the loop's own thread between its last
        # check and its wait, and a condition would miss the handler's signal.
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waiting = TriggerBatch()

    def cluster_changed(self) -> None:
        """Note that an object of the cluster has changed."""
        self._note(events=1)

    def dns_changed(self) -> None:
        """Note that the answer of DNS for a hostname has changed."""
        self._note()

    def drifted(self, component: ComponentName, what: str) -> None:
        """Note that a component might have changed; `what` was observed. The first one is kept."""
        self._note({component: what})

    def wake(self) -> None:
        """End the loop's wait without triggering a pass: a signal arrived, or the writer changed.

        Takes no lock: a signal handler may call it.
        """
        os.eventfd_write(self._bell, 1)

    def waiting(self) -> TriggerBatch | None:
        """Return what waits for a pass; None if nothing does."""
        waiting = self._waiting
        return None if waiting.first is None else waiting

    def wait(self, timeout: float) -> bool:
        """Wait for the next trigger or wake-up, and return whether there was one within `timeout` seconds."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        rung = bool(poll.poll(int(timeout * 1000) + 1))
        if rung:
            os.eventfd_read(self._bell)
        return rung

    def take(self) -> TriggerBatch:
        """Take all triggers; later ones cause another pass."""
        with self._lock:
            taken, self._waiting = self._waiting, TriggerBatch()
            return taken

    def _note(self, drift: Mapping[ComponentName, str] = MappingProxyType({}), events: int = 0) -> None:
        with self._lock:
            before, now = self._waiting, self._clock()
            first = now if before.first is None else before.first
            self._waiting = TriggerBatch(before.events + events, {**drift, **before.drift}, first, now)
        self.wake()
