"""Watch streams: events from a version on, bookmarks, the end after timeoutSeconds, and the line faults.

See "API concepts: Efficient detection of changes" and KEP-956 (bookmarks).
"""

import math
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from . import faults, statuses
from .history import Change, Version
from .routes import TRUE, Asked
from .selecting import Selector
from .traffic import OpenWatch

if TYPE_CHECKING:
    from .server import ApiServer


class Ending(Enum):
    """How a stream ends."""

    CLEAN = "clean"  # the last chunk is sent, the connection may be used again
    DROP = "drop"  # the connection is closed in the middle
    RESET = "reset"  # the connection is reset
    GONE = "gone"  # the client went away


class Feed:
    """Changes put aside for one stream, and the wait for more, which the client's going away ends."""

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

    def take(self, deadline: float) -> Change | Ending | None:
        """Give the next change or the stream's end; None when neither comes before then."""
        while True:
            if self._ending is not None:
                return self._ending
            if self._changes:
                return self._changes.popleft()
            left = (deadline - time.monotonic()) * 1000
            if left <= 0:
                return None
            for descriptor, _ in self._poll.poll(None if left == math.inf else left):
                if descriptor != self._wake:
                    return Ending.GONE
                os.eventfd_read(self._wake)


def _seen(change: Change, shown: Callable[[Version], bool]) -> tuple[str, Version] | tuple[None, None]:
    """Give the type and the object of the event that a client sees which is shown only some objects.

    An object that stops to match is DELETED for this client, with its old content and the revision of the
    change; one that begins to match is ADDED (k8s.io/apiserver, convertToWatchEvent).
    """
    before = change.old is not None and shown(change.old)
    if change.new is not None and shown(change.new):
        return "MODIFIED" if before else "ADDED", change.new
    if change.old is not None and before:
        return "DELETED", change.old.at(change.revision)
    return None, None


def error_line(status: statuses.ApiError) -> bytes:
    """Give the line of an ERROR event."""
    return b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(status.body())


class Stream:
    """One client's watch from its first line to its end; `write` sends bytes as one chunk.

    Raises:
        ApiError: 422 for a list as a stream.
    """

    def __init__(
        self, api: "ApiServer", asked: Asked, selector: Selector, feed: Feed, write: Callable[[bytes], None]
    ) -> None:
        assert asked.resource is not None, "watches are of resources"
        self._api = api
        self._asked = asked
        self._resource = asked.resource
        self._selector = selector
        self._feed = feed
        self._write = write
        self._since = int(asked.query.get("resourceVersion") or 0) or None
        if asked.query.get("sendInitialEvents"):
            # Helm's client asks for a list as a stream; after this answer it lists, as before 1.34.
            what = "Forbidden: sendInitialEvents is forbidden for watch unless WatchList is enabled"
            raise statuses.invalid_options("sendInitialEvents", what)
        self._seconds = int(asked.query.get("timeoutSeconds") or 0) or math.inf
        bookmarks = asked.query.get("allowWatchBookmarks") in TRUE
        self._bookmark_interval = api.bookmark_interval if bookmarks else math.inf

    def follow(self) -> None:
        """Begin to put changes aside; raises ApiError 410 when the version asked for is too old."""
        self._api.store.follow(self._resource, self._since, self._feed.put)

    def run(self, begin: Callable[[], None]) -> Ending:
        """Send lines until the stream ends; give how it did: the caller closes it accordingly.

        `begin` sends the answer's head; a client that is gone already makes it raise OSError.
        """
        open_watch = OpenWatch(self._resource, self._asked.path, self._feed.end)
        self._api.traffic.opened(open_watch)
        try:
            begin()
            return self._send_all()
        finally:
            self._api.traffic.closed(open_watch)
            self._api.store.unfollow(self._resource, self._feed.put)

    def _send_all(self) -> Ending:
        begun = time.monotonic()
        deadline = begun + self._seconds
        bookmark_due = begun + self._bookmark_interval
        ending: Ending | None = None
        while ending is None:
            # Every change up to this revision was put aside before the store had it.
            revision = self._api.store.revision
            drained = revision if self._feed.is_empty() else None
            taken = self._feed.take(min(deadline, bookmark_due))
            if isinstance(taken, Ending):
                ending = taken
            elif taken is not None:
                ending = self._event(taken)
            elif time.monotonic() >= deadline:
                # The real server sends one last bookmark shortly before it ends a stream.
                last = self._bookmark(drained) if bookmark_due < math.inf else None
                ending = last or Ending.CLEAN
            else:
                bookmark_due = time.monotonic() + self._bookmark_interval
                ending = self._bookmark(drained)
        return ending

    def _shown(self, version: Version) -> bool:
        inside = not self._asked.namespace or version.key.startswith(f"{self._asked.namespace}/")
        return inside and self._selector.matches(version.obj)

    def _bookmark(self, revision: int | None) -> Ending | None:
        """Say up to which revision all was sent, unless something waits to be sent (None)."""
        if revision is None:
            return None
        if self._api.faults.for_line(self._asked.path, (faults.Silence,)):
            return self._silent()
        metadata = {"resourceVersion": str(revision)}
        obj = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        self._write(msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n")
        return None

    def _silent(self) -> Ending:
        while True:
            taken = self._feed.take(math.inf)
            if isinstance(taken, Ending):
                return taken

    def _event(self, change: Change) -> Ending | None:
        kind, version = _seen(change, self._shown)
        if kind is None or version is None:
            return None
        line = b'{"type":"%s","object":%s}\n' % (kind.encode(), version.typed(self._resource))
        match self._api.faults.for_line(self._asked.path):
            case faults.Silence():
                return self._silent()
            case faults.ErrorLine(code, reason, message):
                self._write(error_line(statuses.ApiError(code, reason, message)))
                return Ending.CLEAN
            case faults.CutLine(reset):
                self._write(line[: len(line) // 2])
                return Ending.RESET if reset else Ending.DROP
        self._write(line)
        return None
