"""A program run in a container of a pod, through the API server: what it printed, and how it ended.

The subresource pods/exec over the official client's websocket; its channels are those of v4.channel.k8s.io
(KEP-4006): each message begins with a byte that says which stream it is of. RBAC: `get` on pods/exec, since
Kubernetes 1.35 `create` as well.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from queue import Empty, SimpleQueue
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import quote

import msgspec
from kubernetes.client import ApiClient
from kubernetes.stream.ws_client import create_websocket, get_websocket_url
from msgspec import Struct

from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import (
    ApiError,
    ApiRequest,
    Status,
    UnreachableError,
    failure_words,
    refusal,
)
from nodeagent.typed_values import from_json

_STDOUT, _STDERR, _STATUS = 1, 2, 3
_CLOSE = 8
"""The websocket's opcode of the end."""


class Container(Struct, frozen=True):
    """A container of a pod."""

    namespace: str
    pod: str
    name: str


def execute(
    connection: Connection, container: Container, command: Sequence[str], timeout: float, limit: int = 4 << 20
) -> CompletedProcess[bytes]:
    """Run a program without a terminal and without input, and wait for its end.

    Args:
        connection: to the API server.
        container: where.
        command: the program and its arguments; no shell is involved.
        timeout: seconds for everything.
        limit: bytes of standard output, and of standard error, that are read.

    Returns:
        How it ended; an exit code other than 0 is not an error here. Then standard error has at least the
        server's words.

    Raises:
        ApiError: there is no such program; or the server rejects it or does not answer in time, the container
            does not run, the answer is larger than `limit` or broken: it is unknown whether the program ran.
    """
    deadline = time.monotonic() + timeout
    path = f"/api/v1/namespaces/{quote(container.namespace)}/pods/{quote(container.pod)}/exec"
    request = connection.request("create", path)
    query = [("container", container.name), ("stdout", "true"), ("stderr", "true"), ("command", [*command])]
    answers: SimpleQueue[dict[int, bytearray] | Exception] = SimpleQueue()

    def attempt(client: ApiClient, headers: Mapping[str, str]) -> dict[int, bytearray]:
        return _read(_opened(client, request, query, headers), request, deadline, limit)

    def run() -> None:
        try:
            answers.put(connection.authorized(request, attempt))
        except Exception as error:  # noqa: BLE001 - raised by the thread that waits
            answers.put(error)

    # The client opens a websocket without a time limit: a thread may stay behind, until it has one.
    threading.Thread(target=run, name="exec", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout)
    except Empty:
        raise UnreachableError(f"{request}: no answer in time") from None
    if isinstance(answer, Exception):
        raise answer
    return _ended(request, command, answer)


def _opened(
    client: ApiClient, request: ApiRequest, query: Sequence[tuple[str, Any]], headers: Mapping[str, str]
) -> Any:  # noqa: ANN401 - the official client, a WebSocket
    """Open a websocket; raises ApiError."""
    configuration = client.configuration
    if client.default_headers:
        raise ApiError(
            f"{request}: the kubeconfig's user impersonates another one (`as`); no program can be run in "
            "a pod with those rights: give a kubeconfig without it"
        )
    try:
        return create_websocket(
            configuration, get_websocket_url(configuration.host + request.path, query), headers
        )
    except Exception as error:  # of the websocket's own kinds
        if status := getattr(error, "status_code", 0):
            wait = (getattr(error, "resp_headers", None) or {}).get("retry-after", "")
            raise refusal(request, status, getattr(error, "resp_body", None) or b"", str(wait)) from error
        raise UnreachableError(f"{request}: {failure_words(error)}") from error


def _read(opened: Any, request: ApiRequest, deadline: float, limit: int) -> dict[int, bytearray]:  # noqa: ANN401 - a WebSocket
    """Return all messages until the server closes, by stream."""
    streams = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
    try:
        while (left := deadline - time.monotonic()) > 0:
            opened.settimeout(left)
            try:
                kind, message = opened.recv_data()
            except Exception as error:  # of the websocket's own kinds
                # The status is last: with it, the answer is complete, however the connection ends.
                if streams[_STATUS]:
                    return streams
                raise UnreachableError(
                    f"{request}: the connection was lost: {failure_words(error)}"
                ) from error
            if kind == _CLOSE:
                return streams
            held = streams.get(message[0] if message else -1, bytearray())
            held += message[1:]
            if len(held) > limit:
                raise ApiError(f"{request}: the program printed more than {limit} bytes; given up")
        raise UnreachableError(f"{request}: no answer in time")
    finally:
        # No closing handshake: everything has arrived, or is no longer wanted.
        opened.shutdown()


def _ended(
    request: ApiRequest, command: Sequence[str], streams: dict[int, bytearray]
) -> CompletedProcess[bytes]:
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
    said = bytes(streams[_STDERR]).strip() or (status.message.encode() if code else b"")
    return CompletedProcess(command, code, bytes(streams[_STDOUT]), said)
