"""Watches the hosts file."""

import math
from pathlib import Path

from nodeagent.components.hosts.file import is_mount_point
from nodeagent.inotify import ATTRIB, CLOSE_WRITE, MODIFY, FileEvents


class HostsWatch:
    """Implements `component.Watch`: writes, a replacement by a rename, deletion, new times or rights."""

    seconds = math.inf

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events = FileEvents(path, MODIFY | ATTRIB | CLOSE_WRITE, through_mount=is_mount_point(path))

    def fileno(self) -> int:
        """See `component.Watch`."""
        return self._events.fileno()

    def close(self) -> None:
        """See `component.Watch`."""
        self._events.close()

    def drain(self) -> str:
        """See `component.Watch`."""
        return f"{self._path} was changed by another program" if self._events.drain() else ""
