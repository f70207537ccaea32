"""Watches the hosts file: its name in its directory, and the file itself if it is a mount point."""

from pathlib import Path
from typing import ClassVar

from nodeagent.agent import inotify
from nodeagent.agent.drift.watcher import ComparingWatcher, OnDrift
from nodeagent.agent.inotify import EventsLostError, Inotify
from nodeagent.components.component import ComponentName
from nodeagent.components.hosts.component import HostsState
from nodeagent.components.hosts.file import Reading, is_mount_point, read

_FILE = inotify.MODIFY | inotify.ATTRIB | inotify.CLOSE_WRITE
_SELF = inotify.DELETE_SELF | inotify.MOVE_SELF
_NAMES = inotify.MOVED_FROM | inotify.MOVED_TO | inotify.CREATE | inotify.DELETE


class HostsFileWatcher(ComparingWatcher[HostsState, Inotify, Reading | None]):
    """Notices every change to a hosts file: writes, replacement by a rename, deletion, new times or rights.

    A watch on the directory continues when the inode is replaced. But it sees a file only as the directory's
    child: if a single file is mounted over the name, writes come through the other end of the mount, so the
    file is watched, too. The file may be missing, its directory must exist.
    """

    component: ClassVar[ComponentName] = "hosts"

    def __init__(self, path: Path, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._path = path
        self._directory_watch = 0

    def _open(self) -> Inotify:
        return Inotify()

    def _begin(self, source: Inotify) -> None:
        mask = _NAMES | _FILE | _SELF | inotify.ONLYDIR
        self._directory_watch = source.watch(self._path.parent, mask)
        if is_mount_point(self._path):
            source.watch(self._path, _FILE | _SELF)

    def _read(self, source: Inotify) -> None:
        try:
            for event in source.fetch():
                of_directory = event.watch == self._directory_watch
                if of_directory and event.mask & _SELF:
                    raise FileNotFoundError(2, "the directory was moved or deleted", str(self._path.parent))
                if not of_directory or event.name == self._path.name:
                    self._touched = True
        except EventsLostError:
            self._touched = True

    def _compared(self, state: HostsState) -> Reading | None:
        return state.reading

    def _read_actual(self) -> Reading:
        return read(self._path)

    def _difference(self, found: Reading | None) -> str:
        expected = self._expected
        if found is None or found.stamp is None:
            return f"{self._path} was deleted"
        if expected is None or expected.stamp is None:
            return f"{self._path} was changed"
        how = "replaced" if found.stamp.inode != expected.stamp.inode else "written"
        same = ", with the same content" if found.content == expected.content else ""
        return f"{self._path} was {how} by another program{same}"
