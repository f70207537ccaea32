"""The configuration's file, in a directory that the relay's container can write to."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.components.relay.run_directory import RunDirectory


def _link(path: Path) -> None:
    secret = path.with_name("secret")
    secret.write_text("of the node")
    path.symlink_to(secret)


def _without_end(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.mark.parametrize("intruder", [_link, os.mkfifo, _without_end, _socket])
def test_what_an_intruder_puts_in_its_place_is_neither_read_nor_waited_for(
    tmp_path: Path, intruder: Callable[[Path], None]
) -> None:
    tmp_path.chmod(0o700)
    directory = RunDirectory(tmp_path)
    assert directory.read() is None
    directory.config.mkdir()
    assert directory.read() is None
    directory.config.rmdir()
    intruder(directory.config)
    assert directory.read() is None
    directory.install("global\n")
    assert directory.read() == "global\n"
    assert directory.config.is_file()
    assert not directory.config.is_symlink()
    assert [each.read_text() for each in tmp_path.glob("secret")] in ([], ["of the node"])


def test_no_descriptor_stays_open_for_what_is_no_file(tmp_path: Path) -> None:
    """Otherwise an intruder could use up those of the agent, which looks a few times a second."""
    directory = RunDirectory(tmp_path, of_pod=True)
    directory.config.mkdir()
    (tmp_path / "lock").mkdir()
    before = len([*Path("/proc/self/fd").iterdir()])
    assert directory.read() is None
    assert not directory.is_gone()
    assert len([*Path("/proc/self/fd").iterdir()]) == before
