import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nodeagent.linux.inotify import FileEvents
from tests.components.converging import seen
from tests.components.hosts.samples import USER, KeptHosts, apply, hosts_file
from tests.isolation import bind, isolated, mount


@pytest.fixture
def watch(path: Path) -> Iterator[FileEvents]:
    with closing(KeptHosts(path).watch()) as made:
        yield made


def _edit(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"192.0.2.1 user\n")


def _replace(path: Path) -> None:
    subprocess.run(["sed", "-i", "s/db/other/", path], check=True)


def _put_back(path: Path) -> None:
    """The same old file each time."""
    old = path.with_name("old")
    if not old.exists():
        old.write_bytes(USER)
    subprocess.run(["ln", "-f", old, path], check=True)


@pytest.mark.parametrize(
    "change", [_edit, _replace, _put_back, Path.unlink, lambda path: os.utime(path, (1, 1))]
)
def test_a_change_by_another_program_is_seen_also_after_a_repair(
    path: Path, watch: FileEvents, change: Callable[[Path], object]
) -> None:
    for _ in range(3):
        change(path)
        assert seen(watch) == f"{path} was changed by another program"
        apply(path)
        watch.drain()


def test_a_file_that_is_being_written_is_left_alone(path: Path, watch: FileEvents) -> None:
    """What a slow program writes after its truncation would go into a file that was replaced."""
    with path.open("wb", buffering=0) as file:
        assert watch.drain() == ""
        file.write(USER)
        assert watch.drain() == ""
    assert watch.drain()


def test_other_files_and_readers_are_not(path: Path, watch: FileEvents) -> None:
    for number in range(50):
        other = path.with_name(f"hosts.{number}")
        other.write_bytes(path.read_bytes())
        other.rename(path.with_name("resolv.conf"))
    assert watch.drain() == ""


@isolated
def test_a_file_mounted_alone_is_watched_through_its_other_end(tmp_path: Path) -> None:
    """Replaced there, it is an orphan here, whose name is gone."""
    on_host, mounted = tmp_path / "host" / "hosts", tmp_path / "etc" / "hosts"
    for path in (on_host, mounted):
        path.parent.mkdir()
        path.write_bytes(USER)
    bind(on_host, mounted)
    with closing(KeptHosts(mounted).watch()) as watch:
        for change in (_edit, _replace):
            change(on_host)
            assert seen(watch) == f"{mounted} was changed by another program"
            watch.drain()


def test_after_an_overflow_of_the_kernels_queue_all_may_have_changed(path: Path, watch: FileEvents) -> None:
    other = path.with_name("other")
    for _ in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 2 + 1):
        other.touch()
        other.unlink()
    assert watch.drain()
    assert watch.drain() == ""


@pytest.mark.parametrize("change", [lambda etc: etc.rename(etc.with_name("away")), shutil.rmtree])
def test_a_removed_directory_fails(path: Path, watch: FileEvents, change: Callable[[Path], object]) -> None:
    change(path.parent)
    with pytest.raises(FileNotFoundError):
        watch.drain()
    with pytest.raises(FileNotFoundError):
        KeptHosts(path).watch()


def test_another_directory_in_its_place_is_watched(path: Path, watch: FileEvents) -> None:
    away = path.parent.rename(path.parent.with_name("away"))
    hosts_file(path.parent.parent)
    assert watch.drain()
    _edit(away / path.name)
    assert watch.drain() == ""
    _edit(path)
    assert watch.drain()


@isolated
def test_a_directory_whose_file_system_is_unmounted_is_an_error(tmp_path: Path) -> None:
    mount("tmpfs", tmp_path, "tmpfs")
    with closing(KeptHosts(hosts_file(tmp_path)).watch()) as watch:
        subprocess.run(["umount", tmp_path], check=True)
        with pytest.raises(FileNotFoundError):
            watch.drain()
