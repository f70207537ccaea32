import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodeagent.agent.drift.hosts_file import HostsFileWatcher
from nodeagent.components.hosts.component import Hosts
from nodeagent.model.desired import HostsLine
from tests.agent.drift.recorder import Recorder, running
from tests.components.hosts.samples import NETWORKS, ONE, lines, make
from tests.isolation import bind, isolated

USER = b"127.0.0.1 localhost\n"


@dataclass
class Watched:
    """A hosts file kept by its component, and watched."""

    path: Path
    watcher: HostsFileWatcher
    component: Hosts
    said: Recorder

    def write(self, *lines: HostsLine) -> None:
        """Make these the block's lines, as the agent does."""
        with self.watcher.quiet():
            self.watcher.expect(make(self.component, lines))

    def finally_drifts(self) -> None:
        """The last thing that a test of silence does: it ends in drift, and that must come first."""
        give_times(self.path)
        assert self.said.next().endswith("was written by another program, with the same content")


def watched(directory: Path) -> Watched:
    path = directory / "hosts"
    said = Recorder()
    return Watched(
        path,
        HostsFileWatcher(path, said),
        Hosts(path, NETWORKS, directory / "run", adopt=False),
        said,
    )


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Watched]:
    made = watched(tmp_path)
    made.path.write_bytes(USER)
    with running(made.watcher):
        made.write(*ONE)
        yield made


def edit_in_place(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"192.0.2.1 user\n")


def replace(path: Path) -> None:
    subprocess.run(["sed", "-i", "s/www/other/", path], check=True)


def move_over(path: Path) -> None:
    other = path.with_name("another")
    other.write_bytes(USER)
    shutil.move(other, path)


def give_times(path: Path) -> None:
    # Before 6.13, the kernel's "now" is that of the last tick: the file may have been written in it.
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (edit_in_place, "written"),
        (move_over, "replaced"),
        (Path.unlink, "deleted"),
        (give_times, "with the same content"),
    ],
)
def test_every_change_by_another_program_is_seen(
    hosts: Watched, change: Callable[[Path], object], word: str
) -> None:
    change(hosts.path)
    hosts.said.until(word)


def put_back(path: Path) -> None:
    """The same old file each time."""
    old = path.with_name("old")
    if not old.exists():
        old.write_bytes(USER)
    subprocess.run(["ln", "-f", old, path], check=True)


@pytest.mark.parametrize("change", [replace, put_back])
def test_it_is_seen_again_after_the_repair(hosts: Watched, change: Callable[[Path], object]) -> None:
    for _ in range(5):
        change(hosts.path)
        hosts.said.until("replaced")
        hosts.write(*ONE)


def test_own_writes_cause_no_pass(hosts: Watched) -> None:
    for number in range(20):
        hosts.write(*lines(number))
    hosts.write()
    hosts.finally_drifts()


def test_a_foreign_write_during_our_own_is_not_lost(hosts: Watched) -> None:
    with hosts.watcher.quiet():
        left = make(hosts.component, lines(1))
        edit_in_place(hosts.path)
        hosts.watcher.expect(left)
    hosts.said.until("written by another program")


def test_an_edit_before_the_first_pass_is_seen(tmp_path: Path) -> None:
    made = watched(tmp_path)
    with running(made.watcher):
        made.path.write_bytes(USER)
        made.said.until("changed")


def test_other_files_in_the_directory_cause_no_pass(hosts: Watched, tmp_path: Path) -> None:
    for number in range(200):
        other = tmp_path / f"hosts.{number}"
        other.write_bytes(USER)
        other.rename(tmp_path / "resolv.conf")
    for _ in range(200):
        hosts.path.read_bytes()
    hosts.finally_drifts()


def test_a_directory_that_is_replaced_is_watched_again(hosts: Watched, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("moved"))
    hosts.said.until("moved or deleted")
    tmp_path.mkdir()
    hosts.said.until("was restarted", 3)
    hosts.path.write_bytes(USER)
    assert hosts.said.next() != "nothing"


@isolated
def test_a_file_mounted_alone_is_watched_through_its_other_end(tmp_path: Path) -> None:
    node, mine = tmp_path / "node", tmp_path / "mine"
    for directory in (node, mine):
        directory.mkdir()
        (directory / "hosts").write_bytes(USER)
    bind(node / "hosts", mine / "hosts")
    made = watched(mine)
    with running(made.watcher):
        made.write(*ONE)
        made.write(*lines(2))
        edit_in_place(node / "hosts")
        assert "written by another program" in made.said.next()
        made.write(*ONE)
        # Replaced on the host: the mount keeps the orphan, and only the loss of its name shows it.
        replace(node / "hosts")
        made.said.until("mounted as a single file")


def test_after_an_overflow_of_the_queue_the_file_is_read(hosts: Watched) -> None:
    source = hosts.watcher._source  # noqa: SLF001 - the real queue's size is the whole machine's (sysctl)
    assert source is not None
    with hosts.watcher.quiet():
        replace(hosts.path)
        source.on_queue_overflow()  # it drops the events of the line above
    hosts.said.until("replaced")
    replace(hosts.path)
    hosts.said.until("another program")  # the inode's number may be the first one's
