"""One question, one answer over a unix socket of HAProxy's, within a deadline."""

import socket
import time
from enum import StrEnum
from pathlib import PurePath

from msgspec import Struct

_CHUNK = 65536


class Silence(StrEnum):
    """Why a socket gave no answer."""

    ABSENT = "there is no such socket"
    REFUSED = "no process listens on it any more"
    FORBIDDEN = "this user is not permitted to open it"
    CUT = "the connection was closed before the answer"
    LATE = "no answer in time"
    IMPOSSIBLE = "it can't be opened"


class Unreachable(Struct, frozen=True):
    """A socket that gave no answer, and why."""

    path: str
    why: Silence

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def ask(path: PurePath, command: str, timeout: float, most: int = 1 << 26) -> str | Unreachable:
    """Sends one command and returns the whole answer.

    The write side is closed after the command: the master's socket would wait for further commands otherwise
    (management manual 9.4).

    Args:
        path: the socket.
        command: without a newline.
        timeout: seconds for all of it: connecting, sending, reading to the end.
        most: bytes after which a longer answer is cut off.

    Returns:
        The answer, which may be empty; or why there is none.
    """
    deadline = time.monotonic() + timeout
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(command.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            while True:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return Unreachable(str(path), Silence.LATE)
                connection.settimeout(remaining)
                chunk = connection.recv(_CHUNK)
                if not chunk:
                    return answer.decode(errors="replace")
                answer += chunk
                if len(answer) >= most:
                    return answer[:most].decode(errors="replace")
    except OSError as error:
        return Unreachable(str(path), _silence(error))


def _silence(error: OSError) -> Silence:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return Silence.ABSENT
        case ConnectionRefusedError():
            return Silence.REFUSED
        case PermissionError():
            return Silence.FORBIDDEN
        case ConnectionResetError() | BrokenPipeError():
            return Silence.CUT
        case TimeoutError() | BlockingIOError():
            return Silence.LATE
        case _:
            return Silence.IMPOSSIBLE
