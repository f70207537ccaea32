"""A program run in a container of a pod, through the API server: what it printed, and how it ended.

The subresource pods/exec over a websocket; its channels are those of v4.channel.k8s.io (KEP-4006): each
message begins with a byte that says which stream it is of. RBAC: `get` on pods/exec, since Kubernetes 1.35
`create` as well.
"""

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import websocket
from msgspec import Struct

from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ApiError, ApiRequest, Status, UnreachableError, refusal
from nodeagent.sources.kubernetes.transport import Transport, failure_words
from nodeagent.typed_values import from_json

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDOUT, _STDERR, _STATUS = 1, 2, 3
_MOST_ELSE = 65536
"""Bytes of standard error and of the final status that are kept."""


class Container(Struct, frozen=True):
    """A container of a pod."""

    namespace: str
    pod: str
    name: str


class Executed(Struct, frozen=True):
    """A program that ended: its exit code, its output, and what the server says about a failure."""

    exit_code: int
    stdout: bytes
    stderr: str
    failure: str = ""


def execute(
    connection: Connection, container: Container, command: Sequence[str], timeout: float, limit: int = 4 << 20
) -> Executed:
    """Run a program without a terminal and without input, and wait for its end.

    Args:
        connection: to the API server.
        container: where.
        command: the program and its arguments; no shell is involved.
        timeout: seconds for everything.
        limit: bytes of standard output that are read.

    Returns:
        How it ended; an exit code other than 0 is not an error here.

    Raises:
        ApiError: there is no such program; or the server rejects it or does not answer in time, the container
            does not run, the answer is larger than `limit` or broken: it is unknown whether the program ran.
    """
    deadline = time.monotonic() + timeout
    path = f"/api/v1/namespaces/{quote(container.namespace)}/pods/{quote(container.pod)}/exec"
    request = connection.request("create", path)
    query = [("container", container.name), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command]
    target = f"{path}?{urlencode(query)}"
    opened = connection.authorized(request, lambda transport: _opened(transport, request, target, timeout))
    try:
        streams = _read(opened, request, deadline, limit)
    finally:
        # No closing handshake: everything has arrived, or is no longer wanted.
        opened.shutdown()
    return _ended(request, streams)


def _opened(transport: Transport, request: ApiRequest, target: str, timeout: float) -> Any:  # noqa: ANN401 - a WebSocket
    """Open a websocket; raises ApiError."""
    where = transport.target
    headers = [("User-Agent", "nodeagent"), *transport.authorization(request)]
    connection = transport.connect(request, timeout)
    connection.sock.settimeout(timeout)
    opened = websocket.WebSocket(skip_utf8_validation=True)
    host = f"[{where.host}]" if ":" in where.host else where.host
    try:
        opened.connect(  # type: ignore[no-untyped-call]
            f"ws://{host}:{where.port}{where.path}{target}",
            header=[f"{name}: {value}" for name, value in headers],
            subprotocols=list(_PROTOCOLS),
            suppress_origin=True,
            socket=connection.sock,
        )
    except websocket.WebSocketBadStatusException as error:
        wait = str((error.resp_headers or {}).get("retry-after", ""))
        connection.close()
        raise refusal(request, error.status_code, error.resp_body or b"", wait) from error
    except (websocket.WebSocketException, OSError) as error:
        connection.close()
        raise _failure(request, error) from error
    return opened


def _failure(request: ApiRequest, error: Exception) -> UnreachableError:
    if isinstance(error, websocket.WebSocketTimeoutException | TimeoutError):
        return UnreachableError(f"{request}: no answer in time")
    if isinstance(error, websocket.WebSocketConnectionClosedException | ConnectionError):
        return UnreachableError(f"{request}: the connection was lost: {failure_words(error)}")
    return UnreachableError(f"{request}: {failure_words(error)}")


def _read(opened: Any, request: ApiRequest, deadline: float, limit: int) -> dict[int, bytearray]:  # noqa: ANN401 - a WebSocket
    """Return all messages until the server closes, by stream."""
    streams: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise UnreachableError(f"{request}: no answer in time")
        opened.settimeout(left)
        try:
            kind, message = opened.recv_data()
        except (websocket.WebSocketException, OSError) as error:
            # The status is last: with it, the answer is complete, however the connection ends.
            if streams[_STATUS] and not isinstance(error, websocket.WebSocketTimeoutException):
                return streams
            raise _failure(request, error) from error
        if kind == websocket.ABNF.OPCODE_CLOSE:
            return streams
        channel = message[0] if message else -1
        if channel in streams:
            held = streams[channel]
            if channel == _STDOUT and len(held) + len(message) - 1 > limit:
                raise ApiError(f"{request}: the program printed more than {limit} bytes; given up")
            held += message[1 : 1 + max(0, (limit if channel == _STDOUT else _MOST_ELSE) - len(held))]


def _ended(request: ApiRequest, streams: dict[int, bytearray]) -> Executed:
    try:
        status = from_json(bytes(streams[_STATUS]), Status)
    except msgspec.MsgspecError as error:
        raise UnreachableError(
            f"{request}: the connection was lost before the program's exit was reported"
        ) from error
    code = 0 if status.status == "Success" else 1
    for cause in (status.details.causes if status.details else None) or ():
        if cause.reason == "ExitCode" and cause.message.isascii() and cause.message.isdecimal():
            code = int(cause.message[:9])
    if code and status.reason != "NonZeroExitCode":
        raise ApiError(f"{request}: the program was not run: {status.message[:500]}")
    return Executed(
        code, bytes(streams[_STDOUT]), streams[_STDERR].decode("utf-8", "replace"), status.message
    )
