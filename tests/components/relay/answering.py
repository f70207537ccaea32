import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

Answer = Callable[[socket.socket], None]


def says(answer: bytes) -> Answer:
    return lambda connection: connection.sendall(answer)


closes = says(b"")
garbage = says(b"\xff\xfe{]\n\n")
truncated = says(b"Name: HAProxy\nVersion: 2.6")
other_format = says(b'{"Pid": "none", "Version": 9}\nPid: none\n# pxname,new\na,b\n\n')


def hangs(connection: socket.socket) -> None:
    while connection.recv(100):
        pass
    select.select([], [], [], 30)


def endless(connection: socket.socket) -> None:
    try:
        while True:
            connection.sendall(b"Pid: x\n" * 1000)
    except OSError:
        return


ANSWERS = pytest.mark.parametrize(
    "answer",
    [closes, hangs, garbage, truncated, other_format, endless],
    ids=["closes", "hangs", "garbage", "truncated", "other format", "endless"],
)


@contextmanager
def answering(path: Path, answer: Answer) -> Iterator[None]:
    """In place of HAProxy's socket, one that answers each connection like this."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client has gone already
            answer(connection)

    def accept() -> None:
        with suppress(OSError):  # its end
            while True:
                threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listening:
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        listening.listen()
        threading.Thread(target=accept, daemon=True).start()
        yield
        listening.shutdown(socket.SHUT_RDWR)
