"""A hosts file mounted by itself: written in place, by as little as possible, and never into nowhere."""

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from nodeagent.components.hosts import file
from nodeagent.components.hosts.block import BEGIN
from nodeagent.errors import ApplyError
from tests.components.hosts.samples import ONE, USER, KeptHosts, apply, hosts_file, left_beside, lines, render
from tests.isolation import MS_BIND, MS_REC, bind, isolated, mount


def _mounted(directory: Path, content: bytes = USER, *, below: bool = False) -> tuple[Path, Path]:
    """Make a host's file and mount it by itself; give its path on the host and the mounted one.

    `below`: as in a pod of kind, whose node's /etc has /etc/hosts as a mount of its own, and all of which the
    pod mounts.
    """
    on_host = hosts_file(directory, content)
    mounted = directory / "a b\tc" / "etc" / "hosts"
    mounted.parent.mkdir(parents=True)
    mounted.touch()
    bind(on_host, mounted)
    if below:
        seen = directory / "host" / "etc"
        seen.mkdir(parents=True)
        mount(mounted.parent, seen, flags=MS_BIND | MS_REC)
        mounted = seen / "hosts"
    return on_host, mounted


@pytest.mark.parametrize("below", [False, True], ids=["alone", "in a pod of kind"])
@isolated
def test_a_mounted_file_is_written_in_place_and_restored_to_the_byte(tmp_path: Path, below: bool) -> None:
    on_host, path = _mounted(tmp_path, USER + b"no newline", below=below)
    on_host.chmod(0o640)
    inode = on_host.stat().st_ino
    opened = len([*Path("/proc/self/fd").iterdir()])
    assert KeptHosts(path).difference(ONE).before.how == "in place"
    for wanted in (ONE, lines(3000), lines(10, 9), lines(2000, 9), ()):
        apply(path, wanted)
        assert on_host.read_bytes().count(b"\t") == len(wanted)
        assert left_beside(path) == []
    assert on_host.read_bytes() == path.read_bytes() == USER + b"no newline"
    assert on_host.stat().st_ino == inode
    assert len([*Path("/proc/self/fd").iterdir()]) == opened
    assert stat.S_IMODE(on_host.stat().st_mode) == 0o640
    assert stat.S_IMODE((path.parent.parent / "run").stat().st_mode) == 0o700


@isolated
def test_only_the_bytes_that_differ_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: list[Path]
) -> None:
    """The user's lines above the block are not touched even for a moment; the journal is on disk before."""
    _, path = _mounted(tmp_path)
    apply(path, lines(5))
    flushed.clear()
    writes: list[int] = []
    pwrite = os.pwrite

    def noted(descriptor: int, data: bytes, offset: int) -> int:
        writes.append(offset)
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    apply(path, lines(6))
    content = path.read_bytes()
    assert writes == [content.index(b"169.254.66.2\thost00005")]
    assert flushed[1:] == [path.parent.parent / "run", path]


@isolated
def test_an_edit_between_reading_and_writing_is_not_overwritten(tmp_path: Path) -> None:
    on_host, path = _mounted(tmp_path)
    before = file.read(path)
    on_host.write_bytes(b"edited\n")
    with pytest.raises(file.ChangedMeanwhileError):
        file.write_in_place(path, before, b"ours\n", tmp_path / "run")
    assert on_host.read_bytes() == b"edited\n"
    assert list((tmp_path / "run").iterdir()) == []


@isolated
def test_a_mount_whose_source_was_replaced_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    """As when cloud-init or an editor replaces /etc/hosts on the host: the mount keeps the old file."""
    on_host, path = _mounted(tmp_path)
    apply(path)
    subject = KeptHosts(path)
    change = subject.difference(lines(2))
    on_host.with_name("new").write_bytes(b"new\n")
    on_host.with_name("new").rename(on_host)
    with pytest.raises(ApplyError, match="mount the directory"):
        KeptHosts(path).read()
    with pytest.raises(ApplyError, match="Restart the pod"):
        subject.apply(change)
    assert on_host.read_bytes() == b"new\n"


@isolated
def test_an_unnoticed_mount_point_is_reported_by_the_kernel(tmp_path: Path) -> None:
    """The rename gives EBUSY, and the component then writes in place."""
    on_host, path = _mounted(tmp_path)
    assert file.write_atomic(path, file.read(path), b"ours\n") is None
    assert [entry.name for entry in path.parent.iterdir()] == ["hosts"]
    mount("tmpfs", "/proc", "tmpfs")  # nothing shows mounts any more
    subject = KeptHosts(path)
    change = subject.difference(ONE)
    assert change.before.how == "rename"
    subject.apply(change)
    assert BEGIN in on_host.read_bytes()


@isolated
def test_a_full_state_directory_stops_before_the_file_is_touched(tmp_path: Path) -> None:
    on_host, path = _mounted(tmp_path)
    state_dir = path.parent.parent / "run"
    state_dir.mkdir()
    mount("tmpfs", state_dir, "tmpfs", options="size=16k")
    with pytest.raises(ApplyError, match=r"can't write a journal in .*ENOSPC.*left as it was"):
        apply(path, lines(10_000))
    assert on_host.read_bytes() == USER
    assert list(state_dir.iterdir()) == []


@isolated
def test_a_file_that_we_made_is_emptied_when_it_is_a_mount_point(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, None)
    apply(path)
    bind(path, path)
    apply(path, ())
    assert path.read_bytes() == b""


# kill -9 at any moment: every line of the user's is there afterwards, and the next apply converges.


@pytest.fixture(scope="module")
def contents() -> tuple[bytes, ...]:
    """They differ in length and from the first line of the block on."""
    return (
        render(USER, lines(10_000)),
        render(USER, lines(8_000, 9)),
        render(b"# above\n" + USER, lines(9_000, 8)),
    )


def _users_lines(path: Path) -> list[bytes]:
    user = KeptHosts(path).read().file.user
    return user.removeprefix(b"# above\n").splitlines(keepends=True)


def _die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _die_in_write(share: float) -> Callable[[pytest.MonkeyPatch], None]:
    def arm(patch: pytest.MonkeyPatch) -> None:
        pwrite = os.pwrite

        def part(descriptor: int, data: bytes, offset: int) -> NoReturn:
            pwrite(descriptor, data[: int(len(data) * share)], offset)
            _die()

        patch.setattr(os, "pwrite", part)

    return arm


@isolated
@pytest.mark.parametrize("number", [1, 2], ids=["shorter", "with a line of the user's moved"])
@pytest.mark.parametrize(
    "arm",
    [
        *(_die_in_write(share) for share in (0, 0.3, 0.95, 1)),
        lambda patch: patch.setattr(os, "ftruncate", _die),
        lambda patch: patch.setattr(file, "drop_journal", _die),
    ],
)
def test_killed_at_each_step_of_a_write_in_place(
    tmp_path: Path, contents: tuple[bytes, ...], number: int, arm: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """Each state that can be left is made on purpose; twice, so that healing is broken off, too."""
    path = hosts_file(tmp_path, contents[0])
    bind(path, path)
    for content in (contents[number], render(USER, lines(50, 77))):
        child = os.fork()
        if child == 0:
            arm(pytest.MonkeyPatch())
            file.write_in_place(path, file.read(path), content, tmp_path / "run")
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert _users_lines(path) == USER.splitlines(keepends=True)
    apply(path, lines(5))
    assert path.read_bytes().count(BEGIN) == 1
    assert _users_lines(path) == USER.splitlines(keepends=True)
    assert left_beside(path) == []
