"""Events of one file by inotify(7), as an object to poll. EFFECTS: the only importer of watchdog.

One reader of watchdog's, a thread, serves all objects of the process; what concerns an object is kept in it
until it is drained. watchdog's `Observer` above it does not fit. Version 7.1 does this: given a file, it
watches the file's directory, which reports nothing about a file that is a mount point; it only logs an
overflow of the kernel's queue; it holds back a removal for 0.5 s; and it takes one more thread for each
watched path.
"""

import math
import os
import threading
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchdog.observers.inotify_c import InotifyEvent

# include/uapi/linux/inotify.h
MODIFY, ATTRIB, CLOSE_WRITE, CLOSE_NOWRITE = 0x0002, 0x0004, 0x0008, 0x0010
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x0040, 0x0080, 0x0100, 0x0200
_GONE = 0x0400 | 0x0800  # DELETE_SELF, MOVE_SELF
_NAMES = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_ONLYDIR, _DONT_FOLLOW, _MASK_ADD = 0x01000000, 0x02000000, 0x20000000


class FileEvents:
    """Implements `component.Watch`: what happens to one file, and to its name in its directory.

    A watch on the directory continues when the file is replaced. But it sees a file only as the directory's
    child: if a single file is mounted over the name, events come through the other end of the mount, so the
    file is watched, too. The file may be missing, its directory must exist.

    Args:
        path: The file.
        mask: The events of the file that count, besides its replacement and removal.

    Raises:
        OSError: the directory does not exist, no right to read it; EMFILE or ENOSPC at the limits
            fs.inotify.max_user_instances and max_user_watches.
    """

    seconds = math.inf

    def __init__(self, path: Path, mask: int) -> None:
        # If a file is watched again, its callback is the same.
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        self._reader = _reader(os.getpid())
        self._path = path
        self._mask = mask
        self._lock = threading.Lock()
        self._watches: set[int] = set()
        self._directory = self._file = 0
        self._directory_gone = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            self._directory = self._watch(path.parent, _NAMES | _GONE | _ONLYDIR)
            self._watch_file()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """See `component.Watch`."""
        return self._bell

    def drain(self) -> str:
        """See `component.Watch`.

        Raises:
            OSError: the directory was moved, deleted or unmounted.
        """
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return ""
        if self._directory_gone:
            gone = "the directory was moved, deleted or unmounted"
            raise FileNotFoundError(2, gone, str(self._path.parent))
        self._watch_file()  # it may be another one
        return f"{self._path} was changed by another program"

    def close(self) -> None:
        """See `component.Watch`. Idempotent."""
        self._reader.remove_callbacks([(watch, id(self)) for watch in tuple(self._watches)])
        with self._lock:
            bell, self._bell = self._bell, -1
        if bell >= 0:
            os.close(bell)

    def on_event(self, event: "InotifyEvent") -> None:
        """Note an event. For the reader, which reports the events of other objects' watches as well."""
        if event.wd == self._directory:
            if event.mask & _GONE:
                self._directory_gone = True
            elif os.fsdecode(event.name) != self._path.name or not event.mask & _NAMES:
                return
        elif event.wd != self._file or not event.mask & (self._mask | _GONE):
            return
        self._ring()

    def on_watch_deleted(self, wd: int) -> None:
        """Forget it: what it watched was deleted, or its file system unmounted. For the reader."""
        self._watches.discard(wd)
        if wd == self._directory:
            self._directory_gone = True
            self._ring()

    def on_queue_overflow(self) -> None:
        """Note that anything may have happened: the queue was full (fs.inotify.max_queued_events)."""
        self._ring()

    def _watch_file(self) -> None:
        try:
            self._file = self._watch(self._path, self._mask | _GONE)
        except FileNotFoundError:
            self._file = 0  # the directory's events report the next one

    def _watch(self, path: Path, mask: int) -> int:
        # The kernel has one watch for an inode, which other objects may use as well.
        flags = _MASK_ADD | (0 if mask & _ONLYDIR else _DONT_FOLLOW)
        watch: int = self._reader.add_callback(os.fsencode(path), mask | flags, self, id(self))
        if watch < 0:  # watchdog ignores EACCES
            raise PermissionError(13, os.strerror(13), str(path))
        self._watches.add(watch)
        return watch

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
