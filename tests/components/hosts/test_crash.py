"""kill -9 at any moment: every line of the user's is there afterwards, and the next apply converges."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from nodeagent.components.hosts import file
from nodeagent.components.hosts.block import BEGIN
from nodeagent.components.hosts.file import read, write_in_place
from tests.components.hosts.samples import USER, KeptHosts, apply, hosts_file, left_beside, lines, render
from tests.isolation import bind, isolated


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
            write_in_place(path, read(path), content, tmp_path / "run")
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert _users_lines(path) == USER.splitlines(keepends=True)
    apply(path, lines(5))
    assert path.read_bytes().count(BEGIN) == 1
    assert _users_lines(path) == USER.splitlines(keepends=True)
    assert left_beside(path) == []
