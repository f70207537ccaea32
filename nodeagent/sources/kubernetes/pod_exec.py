"""A program run in a container of a pod, through the API server: what it printed, and how it ended.

The subresource pods/exec over the official client's websocket; its channels are those of v4.channel.k8s.io
(KEP-4006): each message begins with a byte that says which stream it is of. RBAC: `get` on pods/exec, since
Kubernetes 1.35 `create` as well.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from subprocess import CompletedProcess
from threading import Thread

import msgspec
from kubernetes.stream.ws_client import create_websocket, get_websocket_url

from nodeagent.sources.kubernetes.connection import Connection, lost
from nodeagent.sources.kubernetes.errors import ApiError, ApiRequest, Status, UnreachableError, refusal
from nodeagent.typed_values import from_json

_STDOUT, _STDERR, _STATUS = 1, 2, 3
_CLOSE = 8
"""The websocket's opcode of the end."""
_LARGEST_OUTPUT = 16 << 20
"""Bytes of standard output, and of standard error, that are read."""


def execute(
    connection: Connection, pod: str, container: str, command: list[str], timeout: float
) -> CompletedProcess[bytes]:
    """Run a program without a terminal and without input, and wait for its end.

    Args:
        connection: to the API server.
        pod: its path in the API.
        container: its name.
        command: the program and its arguments; no shell is involved.
        timeout: seconds for everything.

    Returns:
        How it ended; an exit code other than 0 is not an error here. Then standard error has at least the
        server's words.

    Raises:
        ApiError: there is no such program; or the server rejects it or does not answer in time, the container
            does not run, the answer is too large or broken: it is unknown whether the program ran.
    """
    request = connection.request("create", f"{pod}/exec")
    query = [("container", container), ("stdout", "true"), ("stderr", "true"), ("command", command)]
    ended: Future[dict[int, bytearray]] = Future()

    def run() -> None:
        try:
            ended.set_result(_streams(connection, request, query, timeout))
        except Exception as error:  # noqa: BLE001 - raised by the thread that waits
            ended.set_exception(error)

    # The client opens a websocket without a time limit: a thread may stay behind, until it has one.
    Thread(target=run, name="exec", daemon=True).start()
    try:
        streams = ended.result(timeout)
    except TimeoutError:
        raise UnreachableError(f"{request}: no answer in time") from None
    if max(map(len, streams.values())) > _LARGEST_OUTPUT:
        raise ApiError(f"{request}: the program printed more than {_LARGEST_OUTPUT} bytes; given up")
    try:
        status = from_json(streams[_STATUS], Status)
    except msgspec.MsgspecError as error:
        words = "the connection was lost before the program's exit was reported"
        raise UnreachableError(f"{request}: {words}") from error
    causes = (status.details.causes if status.details else None) or ()
    codes = [cause.message[:9] for cause in causes if cause.reason == "ExitCode"]
    failed = status.status != "Success"
    if failed and status.reason != "NonZeroExitCode":
        raise ApiError(f"{request}: the program was not run: {status.message[:500]}")
    code = int(codes[0]) if failed and codes and codes[0].isdecimal() else int(failed)
    said = bytes(streams[_STDERR]).strip() or (status.message.encode() if code else b"")
    return CompletedProcess(command, code, bytes(streams[_STDOUT]), said)


def _streams(
    connection: Connection, request: ApiRequest, query: Sequence[tuple[str, object]], timeout: float
) -> dict[int, bytearray]:
    """Return what is printed until the server closes or one has `_LARGEST_OUTPUT` bytes, by stream."""
    client, headers = connection.access(request)
    if client.default_headers:
        raise ApiError(
            f"{request}: the kubeconfig's user impersonates another one (`as`); no program can be run in "
            "a pod with those rights: give a kubeconfig without it"
        )
    streams = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
    url = get_websocket_url(client.configuration.host + request.path, query)
    opened = None
    try:
        opened = create_websocket(client.configuration, url, headers)
        opened.settimeout(timeout)
        size = 0
        while size <= _LARGEST_OUTPUT:
            kind, message = opened.recv_data()
            if kind == _CLOSE:
                break
            held = streams.get(message[0] if message else -1, bytearray())
            held += message[1:]
            size = len(held)
    except Exception as error:  # of the websocket's own kinds
        if status := getattr(error, "status_code", 0):
            wait = (getattr(error, "resp_headers", None) or {}).get("retry-after", "")
            raise refusal(request, status, getattr(error, "resp_body", None) or b"", str(wait)) from error
        # The status is last: with it, the answer is complete, however the connection ends.
        if not streams[_STATUS]:
            raise lost(request, error) from error
    finally:
        if opened:
            opened.shutdown()  # No closing handshake: all has arrived, or is no longer wanted.
    return streams
