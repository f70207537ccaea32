"""Containers of pods as far as a client of pods/exec and pods/log can see them.

See KEP-4006 (exec over websockets, subprotocol v4.channel.k8s.io): RFC 6455's handshake, then binary messages
whose first byte names a stream, the last one a Status on stream 3, then the close.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import Message
from functools import partial
from typing import Any

import msgspec
import websocket

from .requests import Asked
from .resources import ApiError

SUBRESOURCES = {("pods", "exec"), ("pods", "log")}
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
        self._running: dict[tuple[str, str, str], tuple[Program, str]] = {}

    def run(self, namespace: str, pod: str, container: str, program: Program, log: str = "") -> None:
        """Let a container run: commands in it go to `program`, its log is `log`."""
        self._running[namespace, pod, container] = program, log

    def program(self, asked: Asked) -> Callable[[], Ended]:
        """Return what runs the command of a request's query. Raises ApiError as the kubelet's answer does."""
        container = asked.query.get("container", "")
        found = self._running.get((asked.namespace, asked.name, container))
        if found is None:
            text = f'unable to upgrade connection: container not found ("{container}")'
            raise ApiError(500, "InternalError", text)
        return partial(found[0], asked.options["command"])

    def log(self, asked: Asked) -> bytes:
        """Return the end of a container's log. Raises ApiError for one that never ran."""
        container = asked.query.get("container", "")
        found = self._running.get((asked.namespace, asked.name, container))
        if found is None:
            raise ApiError(400, "BadRequest", f"container {container} is not valid for pod {asked.name}")
        return "".join(found[1].splitlines(keepends=True)[-int(asked.query.get("tailLines", 0)) :]).encode()


def handshake(headers: Message) -> tuple[tuple[str, str], ...]:
    """Return the headers that answer a handshake's (RFC 6455, 4.2.2)."""
    key = headers.get("Sec-WebSocket-Key", "") + _GUID
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()  # noqa: S324 - the RFC's
    return (
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", accept),
        ("Sec-WebSocket-Protocol", "v4.channel.k8s.io"),
    )


def frames(ended: Ended) -> bytes:
    """Return the frames of an exec's answer, the close among them; a stream comes in pieces."""
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if ended.exit_code:
        text = f"command terminated with non-zero exit code: exit status {ended.exit_code}"
        causes = [{"reason": "ExitCode", "message": str(ended.exit_code)}]
        status |= {"status": "Failure", "message": text, "reason": "NonZeroExitCode"}
        status |= {"details": {"causes": causes}}
    found = bytearray()
    for channel, data in enumerate((ended.stdout, ended.stderr, msgspec.json.encode(status)), 1):
        for start in range(0, len(data), _PIECE):
            found += _frame(websocket.ABNF.OPCODE_BINARY, bytes([channel]) + data[start : start + _PIECE])
    return bytes(found + _frame(websocket.ABNF.OPCODE_CLOSE, _NORMAL_CLOSURE))


def _frame(kind: int, data: bytes) -> bytes:
    frame: Any = websocket.ABNF(1, 0, 0, 0, kind, 0, data)
    formatted: bytes = frame.format()
    return formatted
