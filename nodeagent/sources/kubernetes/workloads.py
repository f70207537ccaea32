"""nodeagent's own pods and workloads: whether the DaemonSet is being deleted, delete it, run in a pod."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes import official
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import (
    ApiError,
    ApiRequest,
    NotFoundError,
    ServerTroubleError,
    Status,
    UnreachableError,
)
from nodeagent.sources.objects.api import Head
from nodeagent.typed_values import from_json

_GOING_SECONDS = 2.0


class OwnDaemonSet(Struct, frozen=True):
    """The DaemonSet that runs this agent, by name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"DaemonSet {self.namespace}/{self.name}"


def is_going(connection: Connection, daemonset: OwnDaemonSet) -> bool:
    """Whether it is deleted or being deleted; an upgrade or a restart of the agent is neither.

    Only the API server's own word for this object counts: a proxy in front of it, or a server that is just
    starting, may answer 404 to everything.

    Raises:
        SourceError: the API did not answer within two seconds; RBAC: get this DaemonSet by name.
    """
    path = f"/apis/apps/v1/namespaces/{daemonset.namespace}/daemonsets/{daemonset.name}"
    try:
        found = from_json(connection.get_json(path, timeout=_GOING_SECONDS), Head)
    except NotFoundError as error:
        if error.object_name != daemonset.name:
            raise
        return True
    except msgspec.MsgspecError as error:
        raise SourceError(f"{daemonset}: the answer is invalid: {error}") from error
    return found.metadata.deletionTimestamp is not None


# Deletes a workload and waits until its last pod has ended.


_FOREGROUND = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
"""The object stays, with a deletionTimestamp, until the garbage collector has deleted its pods."""
_BETWEEN_LOOKS = 1.0


class Workload(Struct, frozen=True):
    """A DaemonSet or Deployment by namespace and name."""

    kind: Literal["DaemonSet", "Deployment"]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Its path on the API server."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/{self.kind.lower()}s/{self.name}"


def delete_and_wait(
    connection: Connection,
    workload: Workload,
    seconds: float,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Delete a workload and return once neither it nor a pod of it exists. Idempotent.

    Args:
        connection: To the API server. RBAC: get and delete this object by name.
        workload: Which one.
        seconds: How long the pods may take to end.
        wait: Waits that many seconds.
        clock: Monotonic seconds.

    Returns:
        Whether there was one to delete.

    Raises:
        SourceError: The API server denies it, or pods still exist after that time. The workload is being
            deleted all the same: a second call continues to wait.
    """
    deadline = clock() + seconds
    try:
        connection.delete_json(workload.path, _FOREGROUND)
    except NotFoundError:
        return False
    while clock() < deadline:
        try:
            connection.get_json(workload.path, timeout=10.0)
        except NotFoundError:
            return True
        except (UnreachableError, ServerTroubleError):
            # The deletion continues without this process; the deadline ends the waiting.
            pass
        wait(_BETWEEN_LOOKS)
    raise SourceError(
        f"{workload}: it is being deleted, but its pods did not end within {seconds:.0f} s; nothing else was "
        f"deleted. See why: kubectl -n {workload.namespace} get pods -o wide. Then run this again."
    )


# A program run in a container of a pod, through the API server: what it printed, and how it ended.
#
# The subresource pods/exec over a websocket; its channels are those of v4.channel.k8s.io (KEP-4006): each
# message begins with a byte that says which stream it is of. RBAC: `get` on pods/exec, since Kubernetes
# 1.35 `create` as well.


_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDOUT, _STDERR, _STATUS = 1, 2, 3
_MOST_ELSE = 65536
"""Bytes of standard error and of the final status that are kept."""


class Container(Struct, frozen=True):
    """A container of a pod."""

    namespace: str
    pod: str
    name: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.pod}, container {self.name}"


class Executed(Struct, frozen=True):
    """A program that ended: its exit code, its output, and what the server says about a failure."""

    exit_code: int
    stdout: bytes
    stderr: str
    failure: str = ""


class NotRunError(ApiError):
    """The container runs, but the program could not be started in it: for example, it does not exist."""


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
        NotRunError: there is no such program.
        ApiError: the server rejects it or does not answer in time, the container does not run, the answer is
            larger than `limit` or broken. Then it is unknown whether the program ran.
    """
    deadline = time.monotonic() + timeout
    path = f"/api/v1/namespaces/{quote(container.namespace)}/pods/{quote(container.pod)}/exec"
    request = connection.request("create", path)
    query = [
        ("container", container.name),
        ("stdout", "true"),
        ("stderr", "true"),
        *(("command", word) for word in command),
    ]
    opened = connection.open_websocket(request, f"{path}?{urlencode(query)}", _PROTOCOLS, timeout)
    try:
        streams = _read(opened, request, deadline, limit)
    finally:
        # No closing handshake: everything has arrived, or is no longer wanted.
        opened.shutdown()
    return _ended(request, streams)


def _read(opened: Any, request: ApiRequest, deadline: float, limit: int) -> dict[int, bytearray]:  # noqa: ANN401 - a WebSocket
    """Return all messages until the server closes, by stream."""
    import websocket  # noqa: PLC0415 - a command that asks no pod needs none

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
            raise official.websocket_failure(request, error) from error
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
        raise NotRunError(f"{request}: the program was not run: {status.message[:500]}")
    return Executed(
        code, bytes(streams[_STDOUT]), streams[_STDERR].decode("utf-8", "replace"), status.message
    )
