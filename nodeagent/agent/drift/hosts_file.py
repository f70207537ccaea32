"""Watches the hosts file: its name in its directory, and the file itself if it is a mount point."""

from pathlib import Path
from typing import ClassVar

from nodeagent.agent import inotify
from nodeagent.agent.drift.watcher import OnDrift, Watcher
from nodeagent.agent.inotify import EventsLostError, Inotify
from nodeagent.components.component import ComponentName
from nodeagent.components.hosts.file import Reading, is_mount_point, read
from nodeagent.components.hosts.state import HostsState
from nodeagent.errors import ApplyError

_FILE = inotify.MODIFY | inotify.ATTRIB | inotify.CLOSE_WRITE
_SELF = inotify.DELETE_SELF | inotify.MOVE_SELF
_NAMES = inotify.MOVED_FROM | inotify.MOVED_TO | inotify.CREATE | inotify.DELETE


class HostsFileWatcher(Watcher[HostsState, Inotify]):
    """Notices every change to a hosts file: writes, replacement by a rename, deletion, new times or rights.

    A watch on the directory continues when the inode is replaced. But it sees a file only as the directory's
    child: if a single file is mounted over the name, writes come through the other end of the mount, so the
    file is watched, too.

    Args:
        path: The hosts file; it may be missing, its directory must exist.
        on_drift: See `Watcher`; the component is "hosts".
    """

    component: ClassVar[ComponentName] = "hosts"

    def __init__(self, path: Path, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._path = path
        self._directory_watch = 0
        self._touched = False
        self._lost = ""
        self._expected: Reading | None = None
        self._told: Reading | str | None = None

    def expect(self, state: HostsState) -> None:
        """See `Watcher`. This state of the file (inode, size, time) is not drift from now on."""
        with self._lock:
            self._told = None
            self._expected = state.reading

    def _open(self) -> Inotify:
        return Inotify()

    def _begin(self, source: Inotify) -> None:
        self._directory_watch = source.watch_directory(self._path.parent, _NAMES | _FILE | _SELF)
        if is_mount_point(self._path):
            source.watch_file(self._path, _FILE | _SELF)

    def _read(self, source: Inotify) -> None:
        try:
            for event in source.fetch():
                of_directory = event.watch == self._directory_watch
                if of_directory and event.mask & _SELF:
                    raise FileNotFoundError(2, "the directory was moved or deleted", str(self._path.parent))
                if not of_directory or event.name == self._path.name:
                    self._touched = True
        except EventsLostError as error:
            self._lost = str(error)

    def _judge(self) -> str:
        if self._lost:
            what, self._lost, self._touched = f"{self._path} may have changed: {self._lost}", "", False
            return what
        if not self._touched:
            return ""
        self._touched = False
        found = self._look()
        # One edit makes several events: the same state is reported once.
        if found in (self._expected, self._told):
            return ""
        self._told = found
        return found if isinstance(found, str) else f"{self._path} {_difference(self._expected, found)}"

    def _look(self) -> Reading | str:
        try:
            return read(self._path)
        except ApplyError as error:
            return str(error)


def _difference(expected: Reading | None, found: Reading) -> str:
    if found.stamp is None:
        return "was deleted"
    if expected is None or expected.stamp is None:
        return "was changed"
    how = "replaced" if found.stamp.inode != expected.stamp.inode else "written"
    same = ", with the same content" if found.content == expected.content else ""
    return f"was {how} by another program{same}"
