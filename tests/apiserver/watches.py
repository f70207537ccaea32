"""Watch streams: events from a version on, bookmarks, the end after timeoutSeconds, and the line faults.

See "API concepts: Efficient detection of changes" and KEP-956 (bookmarks).
"""

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from . import faults, statuses
from .resources import Resource
from .routes import Asked
from .selecting import Selector
from .store import Change, Store, Version
from .traffic import OpenWatch, Traffic

_TRUE = frozenset({"1", "true"})


class Ending(Enum):
    """How a stream ends."""

    CLEAN = "clean"  # the last chunk is sent, the connection may be used again
    DROP = "drop"  # the connection is closed in the middle
    RESET = "reset"  # the connection is reset
    GONE = "gone"  # the client went away


class Feed:
    """Changes put aside for one stream, and the wait for more.

    Args:
        connection: the client's; its going away ends the wait.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._changes: deque[Change] = deque()
        self._ending: Ending | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(connection.fileno(), select.POLLRDHUP)

    def close(self) -> None:
        """Give the descriptor back; no thread may `put` any more."""
        os.close(self._wake)

    def put(self, change: Change) -> None:
        """Put a change aside and wake the stream."""
        self._changes.append(change)
        os.eventfd_write(self._wake, 1)

    def end(self, how: Ending) -> None:
        """Make the stream end, whatever is still to be sent."""
        self._ending = how
        os.eventfd_write(self._wake, 1)

    def is_empty(self) -> bool:
        """Tell whether nothing is put aside."""
        return not self._changes

    def take(self, timeout: float | None) -> Change | Ending | None:
        """Give the next change or the stream's end; None when neither comes within `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._ending is not None:
                return self._ending
            if self._changes:
                return self._changes.popleft()
            left = None if deadline is None else (deadline - time.monotonic()) * 1000
            if left is not None and left <= 0:
                return None
            for descriptor, _ in self._poll.poll(left):
                if descriptor != self._wake:
                    return Ending.GONE
                os.eventfd_read(self._wake)


@dataclass(frozen=True, slots=True)
class Event:
    """A line to be: what the client of this stream sees of a change."""

    type: str
    version: Version

    def line(self, resource: Resource) -> bytes:
        """Give the line as it goes over the wire."""
        return b'{"type":"%s","object":%s}\n' % (self.type.encode(), self.version.typed(resource))


def visible(change: Change, shown: Callable[[Version], bool]) -> Event | None:
    """Give what a client sees of a change when it is shown only some objects; None for nothing.

    An object that stops to match is DELETED for this client, with its old content and the revision of the
    change; one that begins to match is ADDED (k8s.io/apiserver, convertToWatchEvent).
    """
    before = change.old is not None and shown(change.old)
    if change.new is not None and shown(change.new):
        return Event("MODIFIED" if before else "ADDED", change.new)
    if before:
        assert change.old is not None, "it was shown before"
        return Event("DELETED", change.old.at(change.revision))
    return None


def error_line(status: statuses.ApiError) -> bytes:
    """Give the line of an ERROR event."""
    return b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(status.body())


@dataclass(frozen=True, slots=True)
class Terms:
    """What a watch request asks for, read from its query.

    Attributes:
        since: changes after this revision; None for the objects that exist, then what follows.
        bookmarks: seconds between bookmarks; None for none.
        seconds: how long the stream lasts; None for ever.
    """

    since: int | None
    bookmarks: float | None
    seconds: float | None


def terms(asked: Asked, bookmark_interval: float | None, longest: float | None) -> Terms:
    """Read a watch request's query.

    Args:
        asked: the request.
        bookmark_interval: seconds between bookmarks where the client allows them; None for never.
        longest: how long a stream lasts when the client names no time; None for ever.

    Raises:
        ApiError: 400, 422 or 500 for a query that makes no sense.
    """
    query = asked.query
    version = query.get("resourceVersion", "")
    if version and not (version.isascii() and version.isdigit()):
        why = statuses.no_number(version, "ParseUint")
        raise statuses.ApiError(500, "", f'resourceVersion: Invalid value: "{version}": {why}')
    revision = int(version or "0")
    allowed = query.get("allowWatchBookmarks") in _TRUE
    if query.get("sendInitialEvents"):
        # Helm's client asks for a list as a stream; after this answer it lists, as on servers before 1.34.
        what = "Forbidden: sendInitialEvents is forbidden for watch unless WatchList is enabled"
        raise statuses.invalid_options("ListOptions", "sendInitialEvents", what)
    timeout = query.get("timeoutSeconds") or ""
    if timeout and not timeout.isdigit():
        raise statuses.bad_request(statuses.no_number(timeout))
    return Terms(
        since=None if revision == 0 else revision,
        bookmarks=bookmark_interval if allowed else None,
        seconds=float(timeout) if timeout and int(timeout) else longest,
    )


class Stream:
    """One client's watch from its first line to its end.

    Args:
        store: where the changes come from.
        armed: the faults that may strike.
        traffic: counts the stream's beginning, progress and end.
        asked: the request.
        selector: which objects are shown.
        agreed: the request's terms.
        feed: where changes are put aside.
        write: sends bytes as one chunk.
    """

    def __init__(  # noqa: PLR0913 - all of the server's parts meet here
        self,
        *,
        store: Store,
        armed: faults.Faults,
        traffic: Traffic,
        asked: Asked,
        selector: Selector,
        agreed: Terms,
        feed: Feed,
        write: Callable[[bytes], None],
    ) -> None:
        assert asked.resource is not None, "watches are of resources"
        self._store = store
        self._faults = armed
        self._traffic = traffic
        self._asked = asked
        self.resource = asked.resource
        self._selector = selector
        self._terms = agreed
        self._feed = feed
        self._write = write

    def follow(self) -> None:
        """Begin to put changes aside.

        Raises:
            ApiError: 410 when the version asked for is too old.
        """
        self._store.follow(self.resource, self._terms.since, self._feed.put)

    def run(self, begin: Callable[[], None]) -> Ending:
        """Send lines until the stream ends.

        Args:
            begin: sends the answer's head; a client that is gone already makes it raise OSError.

        Returns:
            How it ended: the caller closes the stream accordingly.
        """
        open_watch = OpenWatch(self.resource.plural, self._asked.path, self._asked.query)
        self._traffic.opened(open_watch)
        try:
            begin()
            return self._send_all()
        finally:
            self._traffic.closed(open_watch)
            self._store.unfollow(self.resource, self._feed.put)

    def _send_all(self) -> Ending:
        begun = time.monotonic()
        deadline = begun + self._terms.seconds if self._terms.seconds is not None else float("inf")
        interval = self._terms.bookmarks if self._terms.bookmarks is not None else float("inf")
        bookmark_due = begun + interval
        ending: Ending | None = None
        while ending is None:
            drained = self._drained()
            until = min(deadline, bookmark_due) - time.monotonic()
            taken = self._feed.take(None if until == float("inf") else max(0.0, until))
            if isinstance(taken, Ending):
                ending = taken
            elif taken is not None:
                ending = self._event(taken)
            elif time.monotonic() >= deadline:
                # The real server sends one last bookmark shortly before it ends a stream.
                ending = (self._bookmark(drained) if interval != float("inf") else None) or Ending.CLEAN
            else:
                bookmark_due = time.monotonic() + interval
                ending = self._bookmark(drained)
        return ending

    def _drained(self) -> int | None:
        """Give the revision up to which all was sent; None while something waits to be sent."""
        # Every change up to this revision was put aside before the store had it.
        revision = self._store.revision
        return revision if self._feed.is_empty() else None

    def _shown(self, version: Version) -> bool:
        inside = not self._asked.namespace or version.key.startswith(f"{self._asked.namespace}/")
        return inside and self._selector.matches(version.obj)

    def _bookmark(self, revision: int | None) -> Ending | None:
        if revision is None:
            return None
        if self._faults.silences(self._asked.path):
            return self._silent()
        metadata = {"resourceVersion": str(revision)}
        obj = {"kind": self.resource.kind, "apiVersion": self.resource.api_version, "metadata": metadata}
        self._write(msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n")
        return None

    def _silent(self) -> Ending:
        while True:
            taken = self._feed.take(None)
            if isinstance(taken, Ending):
                return taken

    def _event(self, change: Change) -> Ending | None:
        event = visible(change, self._shown)
        if event is None:
            return None
        struck = self._faults.for_event(self._asked.path)
        line = event.line(self.resource)
        if not struck:
            self._write(line)
            return None
        return self._spoiled(line, struck)

    def _spoiled(self, line: bytes, struck: list[faults.LineFault]) -> Ending | None:
        size = len(line)
        for fault in struck:
            match fault:
                case faults.Silence():
                    return self._silent()
                case faults.ErrorLine(code, reason, message):
                    self._write(error_line(statuses.ApiError(code, reason, message)))
                    return Ending.CLEAN
                case faults.CutLine(reset):
                    self._write(line[: len(line) // 2])
                    return Ending.RESET if reset else Ending.DROP
                case faults.SplitLines(size):
                    pass
        for start in range(0, len(line), size):
            self._write(line[start : start + size])
        return None
