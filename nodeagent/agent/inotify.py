"""inotify(7) as an object to poll. EFFECTS: the only importer of watchdog.

watchdog's `Observer` does not fit here. Version 7.1 does this: given a file, it watches the file's directory,
which reports nothing about a file that is a mount point; it only logs an overflow of the kernel's queue; and
it holds back a removal for 0.5 s. Its reader below the observer does none of that. It runs a thread of its
own; what it reads is kept here until it is fetched.
"""

import os
import select
import warnings
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from watchdog.observers.inotify_c import InotifyEvent

# include/uapi/linux/inotify.h
MODIFY, ATTRIB, CLOSE_WRITE, CLOSE_NOWRITE = 0x0002, 0x0004, 0x0008, 0x0010
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x0040, 0x0080, 0x0100, 0x0200
DELETE_SELF, MOVE_SELF = 0x0400, 0x0800
_ONLYDIR, _DONT_FOLLOW = 0x01000000, 0x02000000

_JOIN_SECONDS = 1.0


class EventsLostError(Exception):
    """Events were dropped; the actual state must be read again."""


class Event(Struct, frozen=True):
    """An event: by which watch, what (bits as above), and to which name in a directory."""

    watch: int
    mask: int
    name: str


class Inotify:
    """An inotify instance; readable by poll(2) if there is something to fetch.

    Raises:
        OSError: EMFILE at the limit fs.inotify.max_user_instances.
    """

    def __init__(self) -> None:
        from watchdog.observers.inotify_c import (  # noqa: PLC0415 - loaded where it is used
            CallbackId,
            InotifyFD,
            Mask,
        )

        # If a file is watched again, the kernel has one watch for it, and the callback is the same.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        self._callback_id = CallbackId(1)
        self._mask = Mask
        self._events: deque[Event] = deque()
        self._lost = False
        self._failure: OSError | None = None
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        inbox = self

        class Reader(InotifyFD):
            def run(self) -> None:
                try:
                    super().run()
                except OSError as error:
                    inbox.fail(error)

        try:
            self._reader = Reader()
        except OSError:
            os.close(self._bell)
            raise
        self._reader.start()

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._bell

    def watch_directory(self, path: Path, mask: int) -> int:
        """Watch the names in a directory; return the watch's number, which its events carry.

        Raises:
            OSError: no such directory, no right to read it, or ENOSPC at fs.inotify.max_user_watches.
        """
        return self._watch(path, mask | _ONLYDIR)

    def watch_file(self, path: Path, mask: int) -> int:
        """Watch one file itself, through whatever path it is reached. Errors as in `watch_directory`."""
        return self._watch(path, mask | _DONT_FOLLOW)

    def fetch(self) -> "Iterator[Event]":
        """Return the events since the last call, without waiting.

        Raises:
            EventsLostError: some events are missing; later calls return those after them.
            OSError: inotify can't be read any more.
        """
        if select.select([self._bell], [], [], 0)[0]:
            os.eventfd_read(self._bell)
        if self._failure is not None:
            raise self._failure
        if self._lost:
            self._lost = False
            self._events.clear()
            raise EventsLostError("more happened at once than inotify's queue can hold")
        while self._events:
            yield self._events.popleft()

    def close(self) -> None:
        """End all watches; once."""
        self._reader.stop()
        self._reader.join(_JOIN_SECONDS)
        os.close(self._bell)

    def fail(self, error: OSError) -> None:
        """Note that no more events arrive. For the reader."""
        self._failure = error
        os.eventfd_write(self._bell, 1)

    def on_event(self, event: "InotifyEvent") -> None:
        """Keep an event. For the reader."""
        self._events.append(Event(event.wd, event.mask, os.fsdecode(event.name)))
        os.eventfd_write(self._bell, 1)

    def on_watch_deleted(self, wd: int) -> None:
        """Ignore it. For the reader; a caller that needs it watches DELETE_SELF."""

    def on_queue_overflow(self) -> None:
        """For the reader: the queue was full (fs.inotify.max_queued_events)."""
        self._lost = True
        os.eventfd_write(self._bell, 1)

    def _watch(self, path: Path, mask: int) -> int:
        watch = self._reader.add_callback(os.fsencode(path), self._mask(mask), self, self._callback_id)
        if watch < 0:  # watchdog ignores EACCES
            raise PermissionError(13, os.strerror(13), str(path))
        return watch
