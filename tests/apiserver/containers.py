"""Containers of pods as far as a client of pods/exec and pods/log can see them.

See KEP-4006 (exec over websockets, subprotocol v4.channel.k8s.io): RFC 6455's handshake, then binary messages
whose first byte names a stream, the last one a Status on stream 3, then the close.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import websocket

from . import statuses
from .resources import Object
from .routes import Asked

PROTOCOL = "v4.channel.k8s.io"
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NORMAL_CLOSURE = (1000).to_bytes(2)
_PIECE = 32768


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and what it had printed."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""


Program = Callable[[Sequence[str]], Ended]
"""Runs a command in a container, for real or as a test has it."""


class Containers:
    """The running containers; every method may be called from any thread."""

    def __init__(self) -> None:
        self._programs: dict[tuple[str, str, str], Program] = {}
        self._logs: dict[tuple[str, str, str], str] = {}

    def run(self, namespace: str, pod: str, container: str, program: Program, log: str = "") -> None:
        """Let a container run: commands in it go to `program`, its log is `log`."""
        self._programs[namespace, pod, container] = program
        self._logs[namespace, pod, container] = log

    def prepare(self, asked: Asked, target: str) -> Callable[[], Ended]:
        """Give what runs the command of a request's query. Raises ApiError as the kubelet's answer does."""
        query = parse_qsl(urlsplit(target).query, keep_blank_values=True)
        container = dict(query).get("container", "")
        program = self._programs.get((asked.namespace, asked.name, container))
        if program is None:
            text = f'unable to upgrade connection: container not found ("{container}")'
            raise statuses.ApiError(500, "InternalError", text)
        return partial(program, [value for key, value in query if key == "command"])

    def log(self, asked: Asked) -> bytes:
        """Give the end of a container's log. Raises ApiError for one that never ran."""
        container = asked.query.get("container", "")
        log = self._logs.get((asked.namespace, asked.name, container))
        if log is None:
            text = f"container {container} is not valid for pod {asked.name}"
            raise statuses.bad_request(text)
        lines = log.splitlines(keepends=True)
        tail = asked.query.get("tailLines")
        return "".join(lines[-int(tail) :] if tail else lines).encode()


def accept(key: str) -> str:
    """Give the answer to a handshake's key (RFC 6455, 4.2.2)."""
    return base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()  # noqa: S324 - the RFC's


def messages(ended: Ended) -> bytes:
    """Give the frames of an exec's answer, the close among them; a stream comes in pieces."""
    frames = bytearray()
    for channel, data in ((1, ended.stdout), (2, ended.stderr)):
        for start in range(0, len(data), _PIECE):
            frames += _frame(websocket.ABNF.OPCODE_BINARY, bytes([channel]) + data[start : start + _PIECE])
    frames += _frame(websocket.ABNF.OPCODE_BINARY, b"\x03" + msgspec.json.encode(_status(ended.exit_code)))
    return bytes(frames + _frame(websocket.ABNF.OPCODE_CLOSE, _NORMAL_CLOSURE))


def _frame(kind: int, data: bytes) -> bytes:
    frame: Any = websocket.ABNF(1, 0, 0, 0, kind, 0, data)
    formatted: bytes = frame.format()
    return formatted


def _status(exit_code: int) -> Object:
    if exit_code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {exit_code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
    }
