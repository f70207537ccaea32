"""inotify(7) as an object to poll. EFFECTS: the only importer of watchdog.

One reader of watchdog's, a thread, serves all objects of the process; what it reads is kept in each until it
is fetched. watchdog's `Observer` above it does not fit. Version 7.1 does this: given a file, it watches the
file's directory, which reports nothing about a file that is a mount point; it only logs an overflow of the
kernel's queue; it holds back a removal for 0.5 s; and it takes one more thread for each watched path.
"""

import os
import select
import threading
import warnings
from collections import deque
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from watchdog.observers.inotify_c import InotifyEvent

# include/uapi/linux/inotify.h
MODIFY, ATTRIB, CLOSE_WRITE, CLOSE_NOWRITE = 0x0002, 0x0004, 0x0008, 0x0010
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x0040, 0x0080, 0x0100, 0x0200
DELETE_SELF, MOVE_SELF = 0x0400, 0x0800
ONLYDIR, _DONT_FOLLOW, _MASK_ADD = 0x01000000, 0x02000000, 0x20000000


class EventsLostError(Exception):
    """Events were dropped; the actual state must be read again."""


class Event(Struct, frozen=True):
    """An event: by which watch, what (bits as above), and to which name in a directory."""

    watch: int
    mask: int
    name: str


class Inotify:
    """A set of watches; readable by poll(2) if there is something to fetch.

    Raises:
        OSError: EMFILE at the limit fs.inotify.max_user_instances.
    """

    def __init__(self) -> None:
        # If a file is watched again, its callback is the same.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        self._reader = _reader(os.getpid())
        self._masks: dict[int, int] = {}
        self._events: deque[Event] = deque()
        self._lost = False
        self._lock = threading.Lock()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._bell

    def watch(self, path: Path, mask: int) -> int:
        """Watch a file itself, through whatever path it is reached, or with ONLYDIR the names in a directory.

        Returns:
            The watch's number, which its events carry.

        Raises:
            OSError: it does not exist, no right to read it, or ENOSPC at fs.inotify.max_user_watches.
        """
        # The kernel has one watch for an inode, which other objects may use as well.
        flags = _MASK_ADD | (0 if mask & ONLYDIR else _DONT_FOLLOW)
        watch: int = self._reader.add_callback(os.fsencode(path), mask | flags, self, id(self))
        if watch < 0:  # watchdog ignores EACCES
            raise PermissionError(13, os.strerror(13), str(path))
        self._masks[watch] = self._masks.get(watch, 0) | mask
        return watch

    def fetch(self) -> "Iterator[Event]":
        """Return the events since the last call, without waiting.

        Raises:
            EventsLostError: some events are missing; later calls return those after them.
        """
        if select.select([self._bell], [], [], 0)[0]:
            os.eventfd_read(self._bell)
        if self._lost:
            self._lost = False
            self._events.clear()
            raise EventsLostError("more happened at once than inotify's queue can hold")
        while self._events:
            yield self._events.popleft()

    def close(self) -> None:
        """End all watches; once."""
        self._reader.remove_callbacks([(watch, id(self)) for watch in list(self._masks)])
        with self._lock:
            bell, self._bell = self._bell, -1
        os.close(bell)

    def on_event(self, event: "InotifyEvent") -> None:
        """Keep an event, unless only another object watches for it. For the reader."""
        mask = self._masks.get(event.wd)
        if mask is None or event.mask & mask:
            self._events.append(Event(event.wd, event.mask, os.fsdecode(event.name)))
            self._ring()

    def on_watch_deleted(self, wd: int) -> None:
        """Forget it. For the reader; a caller that needs it watches DELETE_SELF."""
        self._masks.pop(wd, None)

    def on_queue_overflow(self) -> None:
        """For the reader: the queue was full (fs.inotify.max_queued_events)."""
        self._lost = True
        self._ring()

    def _ring(self) -> None:
        with self._lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)


@cache
def _reader(_: int) -> Any:  # noqa: ANN401 - its types are stricter than their values: NewTypes of int
    """Return the reader of the process with this id: a fork has no threads."""
    from watchdog.observers.inotify_c import InotifyFD  # noqa: PLC0415 - loaded where it is used

    reader = InotifyFD()
    reader.start()
    return reader
