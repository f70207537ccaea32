"""How patient list and watch are."""

from dataclasses import dataclass

from nodeagent.sources.kubernetes.connection import CONNECT_TIMEOUT


@dataclass(frozen=True, slots=True)
class Timing:
    """How patient the threads are; all in seconds.

    Attributes:
        list_timeout: for one page of a list.
        connect_timeout: until a connection stands.
        idle_timeout: without a byte on a watch, after which it counts as dead. Bookmarks come about once
            a minute (KEP-956).
        watch_seconds: a watch is asked to end after a random time in this range, so that nodes don't come
            back together, and move to another API server now and then.
        shortest_watch: a watch that ends sooner without a line is a failure, to be followed by a wait.
        backoff: the first wait after a failure, and the longest.
        refused: a range of seconds, after which something optional that was refused is asked for again.
        discovery: a range of seconds, after which the server is asked again which optional kinds it has.
        optional_wait: how long the first snapshot waits for optional kinds that neither come nor are refused.
        calm: after a list that long ago, a history that is gone (410) asks for a new one at once; one that
            goes again and again waits like any failure.
    """

    list_timeout: float = 60.0
    connect_timeout: float = CONNECT_TIMEOUT
    idle_timeout: float = 150.0
    watch_seconds: tuple[int, int] = (300, 600)
    shortest_watch: float = 1.0
    backoff: tuple[float, float] = (0.5, 30.0)
    refused: tuple[float, float] = (240.0, 360.0)
    discovery: tuple[float, float] = (60.0, 90.0)
    optional_wait: float = 10.0
    calm: float = 30.0
