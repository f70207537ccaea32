"""kill -9 at any moment: every line of the user's is there afterwards, and the next apply converges."""

import os
import signal
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import NoReturn

import pytest

from nodeagent.components.hosts import in_place
from nodeagent.components.hosts.block import BEGIN
from nodeagent.components.hosts.file import read, write_atomic
from nodeagent.components.hosts.in_place import write_in_place
from tests.components.hosts.samples import USER, KeptHosts, apply, hosts_file, left_beside, lines, render
from tests.isolation import bind, isolated, mount

_SPREAD_SECONDS = 0.042


@pytest.fixture(scope="module")
def contents() -> tuple[bytes, ...]:
    """They differ in length and from the first line of the block on."""
    return (
        render(USER, lines(10_000)),
        render(USER, lines(8_000, 9)),
        render(b"# above\n" + USER, lines(9_000, 8)),
    )


def _kill_while_it_writes(
    write: Callable[[bytes], object], contents: tuple[bytes, ...], after_seconds: float
) -> None:
    """Let a child write one content after the other, and kill it."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writable, b".")
            for content in cycle(contents):
                write(content)
        finally:
            os._exit(1)
    os.close(writable)
    assert os.read(readable, 1) == b"."
    os.close(readable)
    time.sleep(after_seconds)  # not for a condition: the moment of the kill is what is varied
    os.kill(child, signal.SIGKILL)
    _await_death(child)


def _await_death(child: int) -> None:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def _users_lines(path: Path) -> list[bytes]:
    user = KeptHosts(path).read().file.user
    return user.removeprefix(b"# above\n").splitlines(keepends=True)


@isolated
@pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])
def test_killed_while_it_writes(
    tmp_path: Path,
    contents: tuple[bytes, ...],
    soak: bool,  # noqa: FBT001 - a fixture
    *,
    in_place: bool,
) -> None:
    """Replaced, there is one of the contents, whole; in place, whichever half is written.

    Either way the user's lines are known, in order, and the next apply completes it.
    """
    mount("tmpfs", tmp_path, "tmpfs")  # flushing costs nothing there, so more kills hit the rest
    path = hosts_file(tmp_path)
    if in_place:
        bind(path, path)

    def write(content: bytes) -> None:
        if in_place:
            write_in_place(path, read(path), content, tmp_path / "run")
        else:
            write_atomic(path, read(path), content)

    kills = 60 if soak else 20
    for number in range(kills):
        before = path.read_bytes()
        _kill_while_it_writes(write, contents, number * _SPREAD_SECONDS / kills)
        assert in_place or path.read_bytes() in {before, *contents}
        assert _users_lines(path) == USER.splitlines(keepends=True)
        if number % 3 == 0:
            apply(path, lines(number + 1))
            assert left_beside(path) == []
    apply(path, ())
    assert _users_lines(path) == USER.splitlines(keepends=True)
    assert left_beside(path) == []


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
        lambda patch: patch.setattr(in_place, "drop_journal", _die),
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
            write_in_place(path, read(path), content, tmp_path / "run")
            os._exit(1)
        _await_death(child)
        assert _users_lines(path) == USER.splitlines(keepends=True)
    apply(path, lines(5))
    assert path.read_bytes().count(BEGIN) == 1
    assert _users_lines(path) == USER.splitlines(keepends=True)
    assert left_beside(path) == []
