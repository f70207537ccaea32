"""One resource kept up to date: list, then watch, over and over.

As in client-go's reflector (tools/cache/reflector.go), and as "API concepts: Efficient detection of changes"
says, a watch resumes from the last resourceVersion; 410 requires a new list, and so do watches that have
brought nothing for a while. Whatever fails, what is known stays (fail_static.py).
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from nodeagent.backoff import Backoff
from nodeagent.errors import SourceError
from nodeagent.model.objects import Unreadable
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.connection import Connection, Stream
from nodeagent.sources.kubernetes.fail_static import DECIDING, Answers, Lasting
from nodeagent.sources.kubernetes.listing import lines, read_event, read_list
from nodeagent.sources.kubernetes.resources import Key, Resource

_LOG = logging.getLogger(__name__)

_WATCH_SECONDS = (300, 600)
"""The server is asked to end a watch after a random time in this range, so that nodes don't reconnect
together, and move to another API server now and then."""
_LOST = (errors.GoneError, errors.NotJsonError, errors.NotFoundError, errors.TooLargeError)
"""After these a watch can't be continued: a change may have been lost in the part that could not be read; a
kind that returns is another collection."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The threads' durations; all in seconds.

    Attributes:
        idle_timeout: a watch without a byte counts as dead. Bookmarks arrive about once a minute (KEP-956).
        shortest_watch: a watch that ends sooner is a failure, whatever it brought: the waits grow.
        unheard: without a line of any watch, the resource is listed again: a proxy that holds back streams,
            or a server that can't watch, makes changes late, not unknown.
        backoff: the first wait after a failure, and the longest.
        refused: a kind that is denied is requested again after this range.
        discovery: the server is asked again which optional kinds it has after this range.
        optional_wait: how long the first snapshot waits for optional kinds that have not answered.
    """

    idle_timeout: float = 150.0
    shortest_watch: float = 1.0
    unheard: float = 120.0
    backoff: tuple[float, float] = (0.5, 30.0)
    refused: tuple[float, float] = (240.0, 360.0)
    discovery: tuple[float, float] = (60.0, 90.0)
    optional_wait: float = 10.0
    lasting: Lasting = field(default_factory=Lasting)


class Store:
    """What is known of one resource, for any thread; `synced` says whether it has been listed once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._items: dict[Key, object] = {}
        self._unreadable = 0
        self.synced = False
        # None after a change.
        self._last_shown: tuple[object, ...] | None = None

    def values(self) -> tuple[object, ...]:
        """Return all that is used, and why objects can't be read; the same tuple until one changes."""
        with self._lock:
            if self._last_shown is None:
                self._last_shown = tuple(self._items.values())
            return self._last_shown

    def __len__(self) -> int:
        """Return how many objects are in use."""
        return len(self._items) - self._unreadable

    def replace(self, items: Mapping[Key, object]) -> bool:
        """Take over a whole list: what is not in it is gone. Return whether any value changed.

        The first list counts as a change even if it is empty: now it is known that there is nothing.
        """
        with self._lock:
            changes = [self.apply(key, items.get(key)) for key in {**self._items, **items}]
            first, self.synced = not self.synced, True
            return first or any(changes)

    def apply(self, key: Key, value: object | None) -> bool:
        """Take over what a watch says of an object, None if it is gone; return whether its value changed."""
        with self._lock:
            before = self._items.get(key)
            if value == before:
                return False
            self._last_shown = None
            self._unreadable += isinstance(value, Unreadable) - isinstance(before, Unreadable)
            if value is None:
                del self._items[key]
            else:
                self._items[key] = value
            return True


class Reflector(threading.Thread):
    """A thread that keeps a Store as the API has it, and calls `on_change`.

    It does so also after an answer that may change what is known of the kind. `watches` were begun, `lists`
    completed; `answers` are the collection's last.
    """

    def __init__(
        self,
        connection: Connection,
        resource: Resource,
        timing: Timing,
        on_change: Callable[[], None],
        store: Store | None = None,
    ) -> None:
        super().__init__(name=f"watch-{resource.name}", daemon=True)
        self.resource = resource
        self.store = store or Store()
        self.watches = self.lists = 0
        self.answers = Answers(timing.lasting)
        self._connection = connection
        self._timing = timing
        self._on_change = on_change
        self._backoff = Backoff(*timing.backoff)
        self._gone_at = -math.inf
        self._stopping = threading.Event()
        self._stream: Stream | None = None

    def stop(self) -> None:
        """Signal the thread to end; nothing is reported from now on."""
        self._stopping.set()
        if (stream := self._stream) is not None:
            stream.interrupt()

    def run(self) -> None:
        """List and watch until the end, whatever fails."""
        while not self._stopping.is_set():
            failure: Exception | None = None
            try:
                self._list_and_watch()
            except Exception as error:  # noqa: BLE001 - logged in full, and shown in `answers`
                if not isinstance(error, SourceError):
                    # A bug in nodeagent must not stop this resource for good: report it, and start again.
                    message = "Watch failed unexpectedly; the resource is listed again"
                    _LOG.exception(message, extra={"fields": {"resource": self.resource.name}})
                failure = error
                self._answered(error)
            self._wait(failure)

    def _list_and_watch(self) -> None:
        """List, and watch until watches bring nothing for too long. Raises what requires a new list."""
        version, heard = self._list(), time.monotonic()
        while not self._stopping.is_set() and time.monotonic() - heard < self._timing.unheard:
            failure = None
            try:
                for newest in self._watch(version):
                    # A late duplicate must not turn the clock back.
                    version, heard = max(version, newest), time.monotonic()
            except _LOST:
                raise
            except SourceError as error:
                failure = error
                self._answered(error)
            self._wait(failure)

    def _list(self) -> int:
        """Take over the whole collection; return its version."""
        listing = read_list(self._connection, self.resource)
        if not self._stopping.is_set():
            changed = self.store.replace(listing.items)
            self.lists += 1
            self._answered(None, changed=changed)
        return listing.version

    def _watch(self, version: int) -> Iterator[int]:
        """Apply the events of one watch until it ends; yield the version of each, 0 if it has none."""
        query = {
            **self.resource.selector,
            "resourceVersion": str(version),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - spreads load, guards nothing
        }
        self._stream = stream = self._connection.open_stream(
            self.resource.path, query, self._timing.idle_timeout
        )
        opened = time.monotonic()
        if self._stopping.is_set():
            stream.interrupt()
        self.watches += 1
        self._answered(None)
        try:
            for line in lines(stream.pieces()):
                if self._stopping.is_set():
                    return
                version, key, value = read_event(line, self.resource, stream.request)
                if key is not None and self.store.apply(key, value):
                    self._on_change()
                yield version
        finally:
            if time.monotonic() - opened >= self._timing.shortest_watch:
                self._backoff.reset()
            self._stream = None
            stream.close()

    def _answered(self, error: Exception | None, *, changed: bool = False) -> None:
        """Take note of an answer; the kind may be another one from now on."""
        if self._stopping.is_set():
            return
        before, self.answers = self.answers, self.answers.then(error, time.monotonic())
        decides = isinstance(error, DECIDING) or isinstance(before.error, DECIDING)
        if changed or (self.resource.optional and decides):
            self._on_change()

    def _wait(self, failure: Exception | None) -> None:
        """Wait before the next request, whatever came of the last one: each failure in a row waits longer."""
        now = time.monotonic()
        if self.answers.denied:
            # A person grants rights: a thousand nodes need not ask every half minute.
            self._stopping.wait(random.uniform(*self._timing.refused))  # noqa: S311 - spreads load
        elif isinstance(failure, errors.GoneError) and now - self._gone_at >= self._timing.unheard:
            # However long the waits have grown, the server answers: the list follows at once.
            self._gone_at = now
        else:
            retry_after = failure.retry_after if isinstance(failure, errors.ApiError) else None
            self._stopping.wait(self._backoff.next(retry_after))
