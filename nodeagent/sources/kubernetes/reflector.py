"""One resource kept up to date: list, then watch, over and over.

It behaves as client-go's reflector (tools/cache/reflector.go) and as "API concepts: Efficient detection of
changes" say: a watch resumes from the last resourceVersion; 410 requires a new list, and so do several
watches in a row that bring nothing. Whatever fails, what is known stays.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from nodeagent.backoff import Backoff
from nodeagent.errors import SourceError
from nodeagent.model.objects import Unreadable
from nodeagent.sources.kubernetes.connection import Connection, Stream
from nodeagent.sources.kubernetes.errors import (
    ApiError,
    ApiRequest,
    ForbiddenError,
    GoneError,
    NoConnectionError,
    NotFoundError,
    NotJsonError,
    TooLargeError,
)
from nodeagent.sources.kubernetes.listing import lines, read_event, read_list
from nodeagent.sources.kubernetes.resources import Item, Key, Resource

_LOG = logging.getLogger(__name__)

_WATCH_SECONDS = (300, 600)
"""The server is asked to end a watch after a random time in this range, so that nodes don't reconnect
together, and move to another API server now and then."""
_MOST_FRUITLESS = 3
"""Watches in a row without a line. After that the resource is listed each time: a proxy that holds back
streams, or a server that can't watch, makes changes late, not unknown."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The threads' durations; all in seconds.

    Attributes:
        idle_timeout: without a byte on a watch, after which it counts as dead. Bookmarks arrive about once
            a minute (KEP-956).
        shortest_watch: a watch that ends sooner without a line is a failure, to be followed by a wait.
        backoff: the first wait after a failure, and the longest.
        refused: a range of seconds, after which an optional kind that was denied is requested again.
        discovery: a range of seconds, after which the server is asked again which optional kinds it has.
        optional_wait: how long the first snapshot waits for optional kinds that neither arrive nor are
            denied.
    """

    idle_timeout: float = 150.0
    shortest_watch: float = 1.0
    backoff: tuple[float, float] = (0.5, 30.0)
    refused: tuple[float, float] = (240.0, 360.0)
    discovery: tuple[float, float] = (60.0, 90.0)
    optional_wait: float = 10.0


class Coverage(StrEnum):
    """Whether the API server provides a resource."""

    WATCHED = "watched"
    PENDING = "pending"
    """It is expected: a request is under way, or the server fails."""
    REFUSED = "refused"
    """RBAC denies it; what was known before stays."""
    NOT_SERVED = "not-served"
    """This server has no such kind."""


_NOTHING = Item(0)


class Store:
    """What is known of one resource; kept until something newer is known (fail static).

    Every method may be called from any thread; each change happens in one step. Each change is idempotent:
    repeating it changes nothing.

    Attributes:
        synced: whether the resource has been listed once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[Key, Item] = {}
        self.synced = False
        # None after a change.
        self._last_shown: tuple[object, ...] | None = None

    def values(self) -> tuple[object, ...]:
        """Return all that is used, and why objects can't be read; the same object until one changes."""
        with self._lock:
            if self._last_shown is None:
                values = (item.value for item in self._items.values())
                self._last_shown = tuple(value for value in values if value is not None)
            return self._last_shown

    def __len__(self) -> int:
        """Return how many objects are in use."""
        return sum(not isinstance(value, Unreadable) for value in self.values())

    def replace(self, items: Mapping[Key, Item]) -> bool:
        """Take over a whole list: what is not in it is gone. Return whether any value changed.

        The first list counts as a change even if it is empty: now it is known that there is nothing.
        """
        with self._lock:
            news = not self.synced
            self.synced = True
            for key in self._items.keys() - items.keys():
                news |= self._hold(key, None)
            for key, item in items.items():
                news |= self._hold(key, item)
            return news

    def apply(self, key: Key, version: int, item: Item | None) -> bool:
        """Take over an object as it is at a version, None if it is gone, unless something newer is known.

        Returns:
            Whether its value changed.
        """
        with self._lock:
            held = self._items.get(key)
            return (held is None or version >= held.version) and self._hold(key, item)

    def _hold(self, key: Key, item: Item | None) -> bool:
        """Hold an object, or no longer; return whether its value changed: otherwise the old one stays."""
        before, after = self._items.get(key, _NOTHING), item or _NOTHING
        changed = after.value != before.value
        if item is None:
            self._items.pop(key, None)
        else:
            self._items[key] = item if changed else Item(item.version, before.value)
        if changed:
            self._last_shown = None
        return changed


class Reflector:
    """Keeps a Store as the API has it, in a thread of its own.

    Attributes:
        resource: which objects.
        store: where they are kept.
        watches: watches begun.
        lists: lists completed.
        error: what is wrong now, in words for a person; None while all is well.

    Args:
        connection: to the API server.
        resource: which objects.
        timing: its durations.
        on_change: called, in its thread, after a value has changed, and when an optional kind turns out not
            to exist or is denied: the first snapshot waits until that is known.
        store: where they are kept; None for an empty one.
    """

    def __init__(
        self,
        connection: Connection,
        resource: Resource,
        timing: Timing,
        on_change: Callable[[], None],
        store: Store | None = None,
    ) -> None:
        self.resource = resource
        self.store = store or Store()
        self.watches = self.lists = 0
        self.error: str | None = None
        self._failure: type[Exception] | None = None
        self._connection = connection
        self._timing = timing
        self._on_change = on_change
        self._backoff = Backoff(*timing.backoff)
        # The highest resourceVersion received, from which a watch continues; None if a list is needed.
        self._version: int | None = None
        # Whether the last watch received a line or lasted, so that no wait is needed.
        self._productive = False
        # Watches that have ended since the last line of one.
        self._fruitless = 0
        # Whether the history was lost since the last productive watch: the first time leads to a new list at
        # once, however long the wait after a failure has grown; after that, it waits like any failure.
        self._lost = False
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.name}", daemon=True)

    @property
    def coverage(self) -> Coverage:
        """Whether the server provides it, by its last answer."""
        if self._failure is ForbiddenError:
            return Coverage.REFUSED
        if self.resource.optional and self._failure is NotFoundError:
            return Coverage.NOT_SERVED
        return Coverage.WATCHED if self.store.synced else Coverage.PENDING

    def start(self) -> None:
        """Start to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """Signal the thread to end; nothing is reported from now on."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.interrupt()

    def join(self, timeout: float) -> None:
        """Wait for the daemon thread's end, at most `timeout` seconds: a slow list may take longer."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._productive = False
            try:
                if self._version is None:
                    self._list()
                if not self._stopping.is_set():
                    stream = self._open()
                    self.error = self._failure = None
                    self._follow(stream)
            except SourceError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - logged in full, and shown in `error`
                # A bug in nodeagent must not stop this resource for good: report it, and start again.
                fields = {"resource": self.resource.name}
                _LOG.exception(
                    "Watch failed unexpectedly; the resource is listed again", extra={"fields": fields}
                )
                self._version = None
                self._fail(error)
            else:
                self._pause(None)

    def _fail(self, error: Exception) -> None:
        """Decide what is next after a failure, and wait as long as it requires."""
        if self._stopping.is_set():
            return
        if isinstance(error, GoneError | NotJsonError | NotFoundError | TooLargeError):
            # A change may have been lost in the unreadable part; a kind that returns is another collection.
            self._version = None
        self.error = str(error)
        self._failure = type(error)
        if self.resource.optional and self.coverage in {Coverage.NOT_SERVED, Coverage.REFUSED}:
            self._on_change()
        self._pause(error)

    def _pause(self, error: Exception | None) -> None:
        """Decide whether to list again after fruitless watches, and wait before the next request.

        There is no wait after a watch that received something or lasted, nor at the first 410.
        """
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        if self._version is not None and retry_after is None and not isinstance(error, NoConnectionError):
            self._fruitless += 1
        if self._fruitless > _MOST_FRUITLESS:
            self._version = None
        if self._productive:
            self._backoff.reset()
            self._lost = False
        if isinstance(error, GoneError) and not self._lost:
            self._lost = True
            return
        if self.resource.optional and isinstance(error, ForbiddenError):
            # A person grants rights: a thousand nodes need not ask every half minute.
            self._stopping.wait(random.uniform(*self._timing.refused))  # noqa: S311 - spreads load
            return
        if retry_after is not None or not self._productive:
            self._stopping.wait(self._backoff.next(retry_after))

    def _list(self) -> None:
        listing = read_list(self._connection, self.resource)
        if self._stopping.is_set():
            return
        self.error = self._failure = None
        changed = self.store.replace(listing.items)
        self._version = listing.version
        self.lists += 1
        if changed:
            self._on_change()

    def _open(self) -> Stream:
        query = {
            **self.resource.selector,
            "resourceVersion": str(self._version),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - spreads load, guards nothing
        }
        stream = self._connection.open_stream(self.resource.path, query, self._timing.idle_timeout)
        with self._lock:
            self._stream = stream
        if self._stopping.is_set():
            stream.interrupt()
        self.watches += 1
        return stream

    def _follow(self, stream: Stream) -> None:
        """Apply the events of a watch until it ends."""
        began = time.monotonic()
        try:
            for line in lines(stream.pieces()):
                if self._stopping.is_set():
                    return
                if self._apply(line, stream.request) and not self._stopping.is_set():
                    self._on_change()
                self._productive = True
                self._fruitless = 0
        finally:
            if time.monotonic() - began >= self._timing.shortest_watch:
                self._productive = True
            with self._lock:
                self._stream = None
            stream.close()

    def _apply(self, line: bytes, request: ApiRequest) -> bool:
        """Apply one line to the held objects; return whether a value changed."""
        try:
            event = read_event(line, self.resource, request)
        except ApiError:
            # A new list is needed whatever it is, as in client-go.
            self._version = None
            raise
        if event is None:
            return False
        version, key, item = event
        # A late duplicate must not turn the clock back.
        self._version = max(version, self._version or 0)
        return key is not None and self.store.apply(key, version, item)
