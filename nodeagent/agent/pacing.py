"""When a pass begins: a lone event at once, a burst of events in few passes. Pure."""

from msgspec import Struct

_BURST_EVENTS = 20
_QUIET_SECONDS = 0.05
_LONGEST_SECONDS = 0.5


class Waiting(Struct, frozen=True):
    """What waits for a pass: how many events came, and when the first and the latest (monotonic seconds)."""

    events: int
    first: float
    latest: float


def seconds_until_pass(waiting: Waiting, last_pass: tuple[float, float], now: float) -> float:
    """How long to wait before the next pass begins; 0 or less means now.

    A burst is let run until it is quiet for 50 ms, but no longer than half a second. Passes take up no
    more than half of the time, however many events come: after one that took t seconds, t are left free.

    Args:
        waiting: The events that wait.
        last_pass: When the last pass began and ended (monotonic seconds).
        now: The same clock now.
    """
    began, ended = last_pass
    start = ended + (ended - began)
    if waiting.events >= _BURST_EVENTS:
        start = max(start, min(waiting.latest + _QUIET_SECONDS, waiting.first + _LONGEST_SECONDS))
    return start - now
