"""One resource kept up to date: list, then watch, over and over.

It behaves as client-go's reflector (tools/cache/reflector.go) and as "API concepts: Efficient detection of
changes" say: a watch resumes from the last resourceVersion; only 410 requires a new list. Whatever fails,
what is known stays.
"""

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from msgspec import Struct

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import (
    ApiError,
    BadRequestError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    NotJsonError,
    ServerTroubleError,
    TooLargeError,
    refusal,
)
from nodeagent.sources.kubernetes.list_watch import (
    NOTHING,
    Bookmark,
    Deleted,
    Failed,
    Key,
    Unknown,
    Upserted,
    number,
    read_event,
    read_list,
)
from nodeagent.sources.kubernetes.resources import Item, Resource
from nodeagent.sources.kubernetes.store import Store
from nodeagent.sources.kubernetes.timing import Backoff, Timing
from nodeagent.sources.kubernetes.transport import LineStream

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """A reflector's history; written only by its thread.

    Attributes:
        watches: watches begun.
        lists: lists completed.
        ignored: watch events ignored because their type is unknown.
        error: what is wrong now, in words for a person; None while all is well.
        failure: the kind of that error.
        last_contact: monotonic time of the server's last sign of life; None before the first.
    """

    watches: int = 0
    lists: int = 0
    ignored: int = 0
    error: str | None = None
    failure: type[Exception] | None = None
    last_contact: float | None = None


class ReflectorCallbacks(Struct, frozen=True):
    """What a reflector calls, in its own thread.

    Attributes:
        on_change: a value has changed.
        on_refused: an optional kind does not exist or is denied; the argument is the kind of error.
    """

    on_change: Callable[[], None]
    on_refused: Callable[[type[Exception]], None] = lambda _: None


@dataclass(slots=True)
class _Position:
    """The progress of reading.

    Attributes:
        resource: what is requested, with its selector if the server knows it.
        version: the highest resourceVersion received, from which a watch continues; None if a list is needed.
        productive: whether the last watch received a line or lasted, so that no wait is needed.
    """

    resource: Resource
    version: int | None = None
    productive: bool = False


class Reflector:
    """Keeps a Store as the API has it, in a thread of its own.

    Args:
        connection: to the API server.
        resource: which objects.
        store: where they are kept.
        timing: its durations.
        calls: what it calls.
    """

    def __init__(
        self,
        connection: Connection,
        resource: Resource,
        store: Store,
        timing: Timing,
        calls: ReflectorCallbacks,
    ) -> None:
        self.resource = resource
        self.progress = Progress()
        self._connection = connection
        self._store = store
        self._timing = timing
        self._calls = calls
        self._backoff = Backoff(*timing.backoff)
        self._at = _Position(resource)
        self._listed = -math.inf
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stream: LineStream | None = None
        self._initial: dict[Key, Item] | None = None
        self._known = NOTHING
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.name}", daemon=True)

    def start(self) -> None:
        """Start to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """Signal the thread to end; nothing is reported from now on."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.interrupt()

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end, at most `timeout` seconds; return whether it has ended.

        A thread that waits for a slow list ends with it; being a daemon, it keeps no process alive.
        """
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._at.productive = False
            try:
                self._advance()
            except SourceError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - logged in full, and shown in `error`
                # A bug in nodeagent must not stop this resource for good: report it, and start again.
                _LOG.exception(
                    "Watch failed unexpectedly; the resource is listed again", extra={"fields": self._named()}
                )
                self._at.version = None
                self._fail(error)
            else:
                self._pause(None)

    def _advance(self) -> None:
        """List if necessary, then watch until the stream ends; raise ApiError if something fails."""
        if self._at.version is None and self._timing.streaming and self._connection.streams_lists:
            if self._streamed():
                return
            # The answer is not a list: an older server, or a proxy that does not know streamed lists.
            self._connection.streams_lists = False
        if self._at.version is None:
            self._list()
        if self._stopping.is_set() or self._at.version is None:
            return
        self._watch(self._at.version)

    def _fail(self, error: Exception) -> None:
        """Decide what is next after a failure, and wait as long as it requires."""
        if self._stopping.is_set():
            return
        if isinstance(error, GoneError):
            self._at.version = None
        elif isinstance(error, BadRequestError) and self._at.resource.dispensable:
            # read_list notices this by itself; this is a watch at another, older API server.
            self._at.resource = self._at.resource.widened()
            self._at.version = None
        elif isinstance(error, NotJsonError | NotFoundError | TooLargeError):
            # A change may have been lost in the unreadable part; a kind that returns is another collection.
            self._at.version = None
        if self.progress.error != str(error):
            # Servers restart, histories are compacted: that is normal as long as the next attempt works.
            everyday = self._at.productive or (self.resource.optional and isinstance(error, NotFoundError))
            level = logging.INFO if everyday else logging.WARNING
            _LOG.log(
                level,
                "Could not read a resource; what is known stays",
                extra={"fields": self._named(error)},
            )
        self.progress.error = str(error)
        self.progress.failure = type(error)
        if self.resource.optional and isinstance(error, ForbiddenError | NotFoundError):
            self._calls.on_refused(type(error))
        self._pause(error)

    def _pause(self, error: Exception | None) -> None:
        """Wait, unless the last watch received something: then it is resumed at once."""
        if self._at.productive or (isinstance(error, GoneError) and self._is_calm()):
            self._backoff.reset()
            if isinstance(error, GoneError):
                return
        if self.resource.optional and isinstance(error, ForbiddenError):
            # A person grants rights: a thousand nodes need not ask every half minute.
            self._stopping.wait(random.uniform(*self._timing.refused))  # noqa: S311 - spreads load
            return
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        if retry_after is not None or not self._at.productive:
            self._stopping.wait(self._backoff.next(retry_after))

    def _is_calm(self) -> bool:
        return time.monotonic() - self._listed >= self._timing.calm

    def _named(self, error: Exception | None = None) -> dict[str, str]:
        """Return the fields of a log record about this resource."""
        return {"resource": self.resource.name} | ({"err": str(error)} if error else {})

    def _contact(self) -> None:
        self.progress.last_contact = time.monotonic()

    def _well(self) -> None:
        self._contact()
        if self.progress.error is not None:
            _LOG.info("Read a resource again", extra={"fields": self._named()})
        self.progress.error = None
        self.progress.failure = None

    def _list(self) -> None:
        known = self._store.by_key()
        listing = read_list(
            self._connection, self._at.resource, known, self._timing.list_timeout, self._contact
        )
        if self._stopping.is_set():
            return
        self._at.resource = listing.resource
        self._listed_all(listing.items, number(listing.version))

    def _listed_all(self, items: Mapping[Key, Item], version: int) -> None:
        changed = self._store.replace(items)
        self._at.version = version
        self.progress.lists += 1
        if self._is_calm():
            self._backoff.reset()
        self._listed = time.monotonic()
        self._well()
        if changed:
            self._calls.on_change()

    def _streamed(self) -> bool:
        """List and watch by one request; return whether the server can do that.

        Without a resourceVersion, the objects are the newest, as in a list: nothing goes back in time ("API
        concepts: Streaming lists"). Kubernetes 1.34 and later can; 1.33 answers 422.
        """
        try:
            self._watch(None)
        except (BadRequestError, GoneError, ServerTroubleError) as error:
            status = (
                error.status if isinstance(error, ServerTroubleError) else HTTPStatus.UNPROCESSABLE_ENTITY
            )
            refused = status == HTTPStatus.UNPROCESSABLE_ENTITY
            if self._initial is None or not refused:
                raise
            _LOG.info("The server does not stream lists", extra={"fields": self._named(error)})
            return False
        finally:
            unfinished, self._initial, self._known = self._initial is not None, None, NOTHING
        return not unfinished or self._stopping.is_set()

    def _watch(self, version: int | None) -> None:
        """Watch from a version on; None: from all objects that exist, which replace what is known."""
        low, high = self._timing.watch_seconds
        query = {
            **self._at.resource.selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(low, high)),  # noqa: S311 - spreads load, guards nothing
        }
        if version is None:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self._initial, self._known = {}, self._store.by_key()
        else:
            query["resourceVersion"] = str(version)
        stream = self._connection.stream_lines(
            self._at.resource.path, query, self._timing.connect_timeout, self._timing.idle_timeout
        )
        began = time.monotonic()
        with self._lock:
            self._stream = stream
        try:
            self.progress.watches += 1
            self._well()
            # A server's events on this stream are newer than `version`, and than deletions seen before.
            self._store.forget_deletions()
            self._follow(stream)
        finally:
            if self._initial is None and time.monotonic() - began >= self._timing.shortest_watch:
                self._at.productive = True
            with self._lock:
                self._stream = None
            stream.close()

    def _follow(self, stream: LineStream) -> None:
        if self._stopping.is_set():
            return
        list_until = time.monotonic() + self._timing.list_timeout
        for line in stream:
            if self._stopping.is_set():
                return
            self._contact()
            if self._initial is not None:
                if time.monotonic() > list_until:
                    return
                self._take_initial(line, self._initial)
                continue
            if self._take(line) and not self._stopping.is_set():
                self._calls.on_change()
            self._at.productive = True

    def _take_initial(self, line: bytes, found: dict[Key, Item]) -> None:
        """Gather what exists; at its end, it replaces what is known, in one step."""
        match read_event(line, self._at.resource, self._known):
            case Upserted(key, item):
                found[key] = item
            case Deleted(key, _):
                found.pop(key, None)
            case Bookmark(version, ends_initial=True):
                self._initial, self._known = None, NOTHING
                self._listed_all(found, version)
            case Failed(code, body):
                raise refusal(self._connection.request("watch", self.resource.path), code, body)
            case Unknown():
                self.progress.ignored += 1

    def _take(self, line: bytes) -> bool:
        """Apply one line to the held objects; return whether a value changed."""
        changed = False
        match read_event(line, self._at.resource):
            case Upserted(key, item):
                changed = self._store.put(key, item)
                self._reached(item.version)
            case Deleted(key, version):
                changed = self._store.remove(key, version)
                self._reached(version)
            case Bookmark(version):
                self._reached(version)
            case Failed(code, body):
                # A new list is needed whatever the code, as in client-go.
                self._at.version = None
                raise refusal(self._connection.request("watch", self.resource.path), code, body)
            case Unknown():
                self.progress.ignored += 1
        return changed

    def _reached(self, version: int) -> None:
        # A late duplicate must not turn the clock back.
        self._at.version = max(version, self._at.version or 0)
