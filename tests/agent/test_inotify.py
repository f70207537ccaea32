"""An inotify instance reports what happens to what it watches."""

import select
from pathlib import Path

from nodeagent.agent.inotify import CLOSE_WRITE, Event, Inotify


def test_a_file_that_is_watched_twice_reports_each_event_once(tmp_path: Path) -> None:
    """A lock file is watched again when its directory reports it, and it may be the one that was watched."""
    file = tmp_path / "lock"
    file.touch()
    inotify = Inotify()
    try:
        watch = inotify.watch(file, CLOSE_WRITE)
        assert inotify.watch(file, CLOSE_WRITE) == watch
        file.write_text("", encoding="ascii")
        assert select.select([inotify], [], [], 10) == ([inotify], [], [])
        assert list(inotify.fetch()) == [Event(watch, CLOSE_WRITE, "")]
    finally:
        inotify.close()
