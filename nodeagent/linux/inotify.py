"""Events of one file by inotify(7), as a descriptor to poll. EFFECTS: the only importer of watchdog.

Of watchdog, only its bindings of the C library: what is above them has threads of its own, and reports
nothing about a file that is a mount point.
"""

import ctypes
import math
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# include/uapi/linux/inotify.h
ATTRIB, CLOSE_WRITE, CLOSE_NOWRITE = 0x0004, 0x0008, 0x0010
_NAMES = 0x0040 | 0x0080 | 0x0100 | 0x0200  # MOVED_FROM, MOVED_TO, CREATE, DELETE
_GONE = 0x0400 | 0x0800  # DELETE_SELF, MOVE_SELF
_OVERFLOW = 0x4000
_ONLYDIR, _DONT_FOLLOW = 0x01000000, 0x02000000
_EVENT = struct.Struct("=iI4xI")  # struct inotify_event: watch, mask, a cookie, and the size of the name
_BUFFER_BYTES = 1 << 16


class FileEvents:
    """Implements `component.Watch`: what happens to one file, and to its name in its directory.

    A watch on the directory continues when the file is replaced. But if a single file is mounted over the
    name, events come through the other end of the mount, so the file is watched, too; of its events, those of
    `mask` count. The file may be missing, its directory must exist. Raises OSError, also at the limits
    fs.inotify.max_user_instances (EMFILE) and max_user_watches (ENOSPC).
    """

    seconds = math.inf

    def __init__(self, path: Path, mask: int) -> None:
        from watchdog.observers.inotify_c import inotify_add_watch, inotify_init  # noqa: PLC0415 - when used

        self._path = path
        self._mask = mask
        self._add = inotify_add_watch
        self._descriptor = _checked(inotify_init(), path)
        os.set_blocking(self._descriptor, False)
        try:
            self._watch()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._descriptor

    def drain(self) -> str:
        own = {b"", os.fsencode(self._path.name)}  # without a name: the directory itself is gone
        events = [*self._arrived()]
        if not any(
            watch == self._file or (watch == self._directory and name in own) or mask & _OVERFLOW
            for watch, mask, name in events
        ):
            return ""
        self._watch()  # they may be others
        return f"{self._path} was changed by another program"

    def close(self) -> None:
        os.close(self._descriptor)

    def _watch(self) -> None:
        self._directory = self._added(self._path.parent, _NAMES | _GONE | _ONLYDIR)
        self._file = 0
        with suppress(FileNotFoundError):  # the directory's events report the next one
            self._file = self._added(self._path, self._mask | _GONE | _DONT_FOLLOW)

    def _added(self, path: Path, mask: int) -> int:
        return _checked(self._add(self._descriptor, os.fsencode(path), mask), path)

    def _arrived(self) -> Iterator[tuple[int, int, bytes]]:
        with suppress(BlockingIOError):
            while data := os.read(self._descriptor, _BUFFER_BYTES):
                end = 0
                while end < len(data):
                    watch, mask, length = _EVENT.unpack_from(data, end)
                    end += _EVENT.size + length
                    yield watch, mask, data[end - length : end].rstrip(b"\0")


def _checked(result: int, path: Path) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    return result
