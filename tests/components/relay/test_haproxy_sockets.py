import os
import socket
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.components.relay.haproxy_sockets import (
    Processes,
    Reload,
    Silence,
    Unreachable,
    read_processes,
    read_servers,
    read_worker,
    reload_haproxy,
)
from nodeagent.components.relay.run_directory import RunDirectory
from tests.components.relay.answering import ANSWERS, Answer, answering, says

PROCESSES = Path(__file__).with_name("processes.txt").read_text()


def _in_turn(*answers: str) -> Answer:
    """Give these answers, one to each connection."""
    left = iter(answers)

    def answer(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(next(left).encode())

    return answer


def test_the_processes_of_a_master(tmp_path: Path) -> None:
    path = tmp_path / "m"
    # A master that executes itself again says nothing at first, and without the last lines has no worker.
    with answering(path, _in_turn("", PROCESSES.partition("# workers")[0], PROCESSES)):
        assert read_processes(path) == Processes(
            master=1162, workers=(1271,), old_workers=(1233, 1230), reloads=5, failed_reloads=2
        )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("", Reload()),
        ("Success=1\n--\n[NOTICE] ready\n", Reload(log="[NOTICE] ready")),
        ("Success=0\n--\n[ALERT] bad\n", Reload(refused=True, log="[ALERT] bad")),
    ],
)
def test_what_old_and_new_versions_say_to_a_reload(tmp_path: Path, answer: str, expected: Reload) -> None:
    with answering(tmp_path / "m", _in_turn(answer)):
        assert reload_haproxy(tmp_path / "m", 5) == expected


_INFO = f"Name: HAProxy\nVersion: 2.6.12\nPid: 15333\ndescription: nodeagent-{'0' * 64}\n\n"
_STATISTICS = Path(__file__).with_name("statistics.csv").read_text()


@pytest.mark.parametrize(
    ("read", "answer"), [(read_worker, _INFO), (read_servers, _STATISTICS)], ids=["worker", "servers"]
)
def test_part_of_an_answer_is_no_answer(tmp_path: Path, read: Callable[[Path], object], answer: str) -> None:
    path = tmp_path / "m"
    parts = [answer[:length] for length in range(len(answer))]
    with answering(path, _in_turn(*parts, answer)):
        assert {read(path) for _ in parts} == {Unreachable(str(path), Silence.CUT)}
        assert not isinstance(read(path), Unreachable)


def test_what_the_statistics_say_of_each_listener(tmp_path: Path) -> None:
    with answering(tmp_path / "m", _in_turn(_STATISTICS)):
        found = read_servers(tmp_path / "m")
    assert not isinstance(found, Unreachable)
    assert [(str(each.bind), each.up, each.connections, each.rejected, each.health) for each in found] == [
        ("169.254.66.5:443", True, 3, 3, "UP 1/3 (Layer4 check passed), 3 connections, 3 rejected"),
        ("169.254.66.6:443", False, 0, 0, "DOWN (L4CON: Connection refused)"),
        ("169.254.66.7:443", False, 5, 0, "no check"),
    ]


@ANSWERS
@pytest.mark.parametrize("read", [read_worker, read_servers, read_processes])
def test_an_unusable_answer_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object], answer: Answer
) -> None:
    monkeypatch.setattr("nodeagent.components.relay.haproxy_sockets.ASK_SECONDS", 0.2)
    started = time.monotonic()
    with answering(tmp_path / "m", answer):
        assert isinstance(read(tmp_path / "m"), Unreachable)
    assert time.monotonic() - started < 2


_ROWS = [f"t_x_10.0.{high}.{low}_443,FRONTEND" for high in range(250) for low in range(250)]
_LARGE = [
    "# pxname,svname\n" + "\n".join(_ROWS) + "\n\n",
    "# pxname,svname" + ",a" * 100_000 + "\n" + "\n".join(_ROWS[:40_000]) + "\n\n",
    "# pxname,svname,scur\n" + "\n".join(f"{row},{'9' * 300}" for row in _ROWS) + "\n\n",
    PROCESSES + "1 worker 1\n" * 1_000_000 + "\n",
]


@pytest.mark.parametrize(
    ("read", "answer"),
    list(zip([read_servers, read_servers, read_servers, read_processes], _LARGE, strict=True)),
    ids=["rows", "columns", "bytes", "processes"],
)
def test_an_intruders_answer_is_bounded(tmp_path: Path, read: Callable[[Path], object], answer: str) -> None:
    """In the container of HAProxy, whose sockets are there."""
    encoded = answer.encode()
    with answering(tmp_path / "m", says(encoded)):
        tracemalloc.start()
        assert isinstance(read(tmp_path / "m"), Unreachable)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 64 << 20


def test_why_a_socket_does_not_answer(tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    for path, why in (
        (tmp_path / "none", Silence.ABSENT),
        (dead, Silence.REFUSED),
        (tmp_path / ("x" * 200), Silence.IMPOSSIBLE),
    ):
        assert read_processes(path) == Unreachable(str(path), why)


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
def test_an_intruders_file_is_not_waited_for(
    tmp_path: Path, intruder: Callable[[Path], None], flushed: list[Path]
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
    assert flushed[1:] == [tmp_path]
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
