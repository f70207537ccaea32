"""The connection to the API server: raw HTTP, by the transport of a pod or of a kubeconfig.

Answers stay bytes; the decoders take the few fields on which decisions depend.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.errors import (
    ApiPath,
    ApiRequest,
    NotJsonError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    refusal,
)
from nodeagent.sources.kubernetes.in_cluster import PodTransport
from nodeagent.sources.kubernetes.official import OfficialTransport
from nodeagent.sources.kubernetes.transport import LineStream, Response, Transport

CONNECT_TIMEOUT = 10.0
"""Seconds until a connection must be open: a SYN may be lost twice (retransmitted after 1 and 3 s)."""

_METHODS = {"create": "POST", "update": "PUT", "delete": "DELETE"}
_READ_AT_ONCE = 262144
LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are read into memory, unpacked: a page of 500 Ingresses has about 1 MB."""
_LONGEST_REFUSAL = 65536
"""Bytes of an error answer that are read: a Status is far smaller."""


def connect(kubeconfig: Path | None = None, environment: Mapping[str, str] = os.environ) -> "Connection":
    """Find the API server and the credentials; makes no connection yet (an exec plugin is run, though).

    Args:
        kubeconfig: the file to use; None for the ServiceAccount in a pod (KUBERNETES_SERVICE_HOST is set),
            else $KUBECONFIG, else ~/.kube/config, as kubectl does it.
        environment: the process's environment.

    Returns:
        The connection; close it in the end.

    Raises:
        SourceError: there is no usable configuration; the text names the file.
    """
    if kubeconfig is None and environment.get("KUBERNETES_SERVICE_HOST"):
        return Connection(lambda: PodTransport.of(environment))
    path = str(kubeconfig) if kubeconfig else environment.get("KUBECONFIG") or str(Path("~/.kube/config"))
    return Connection(lambda: OfficialTransport(path))


class Connection:
    """Raw HTTP to one API server; every method may be called from any thread.

    Attributes:
        bytes_read: bytes of answers' bodies so far, as they came over the wire (lists are compressed).
        streams_lists: whether the server begins a watch with all objects that exist, as far as is known.

    Args:
        load: returns a new transport; called again when credentials are rejected.

    Raises:
        SourceError: whatever `load` raises.
    """

    def __init__(self, load: Callable[[], Transport]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._transport = load()
        self.bytes_read = 0
        self.streams_lists = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections; those in use end with their answers."""
        self._transport.close()

    @property
    def server(self) -> tuple[str, int]:
        """Host (a name or an address) and port of the API server: never to be redirected."""
        return self._transport.server

    def request(self, verb: str, path: str) -> ApiRequest:
        """Return a request as errors name it: with the server, and with the proxy in front of it, if any."""
        host, port = self.server
        through = f" through the proxy {proxy}" if (proxy := self._transport.proxy) else ""
        return ApiRequest(
            verb, path, f"[{host}]:{port}{through}" if ":" in host else f"{host}:{port}{through}"
        )

    def get_json(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        most: int = LARGEST_ANSWER,
    ) -> bytes:
        """Read an object or a list.

        Args:
            path: its path.
            query: the query's parameters.
            timeout: seconds until the whole answer must have arrived.
            most: the bytes that are read into memory.

        Returns:
            The body: JSON by its content type, not parsed yet.

        Raises:
            TooLargeError: it has more than `most` bytes.
            ApiError: another one of its kinds.
        """
        about = ApiPath.parse(path)
        request = self.request("list" if about.resource and not about.name else "get", path)
        deadline = time.monotonic() + timeout
        limits = (min(CONNECT_TIMEOUT, timeout), timeout)
        response = self._open(request, query or {}, limits, {"Accept-Encoding": "gzip"})
        return self._body(request, response, deadline, most)

    def get_text(
        self, path: str, query: Mapping[str, str], timeout: float = 60.0, most: int = LARGEST_ANSWER
    ) -> bytes:
        """Read something that is not JSON: a container's log.

        Args:
            path: its path.
            query: the query's parameters.
            timeout: seconds until the whole answer must have arrived.
            most: the bytes that are read into memory.

        Raises:
            TooLargeError: it has more than `most` bytes.
            ApiError: another one of its kinds.
        """
        request = self.request("get", path)
        deadline = time.monotonic() + timeout
        limits = (min(CONNECT_TIMEOUT, timeout), timeout)
        response = self._open(request, query, limits, {"Accept": "*/*"})
        return self._body(request, response, deadline, most, json=False)

    def post_json(self, path: str, body: Mapping[str, Any], timeout: float = 10.0) -> bytes:
        """Create an object; not idempotent: a repetition raises AlreadyExistsError.

        Args:
            path: the collection's path.
            body: the object, as JSON values.
            timeout: seconds until the whole answer must have arrived.

        Returns:
            The object as created, as JSON.

        Raises:
            ApiError: one of its kinds.
        """
        return self._write(self.request("create", path), body, timeout)

    def put_json(self, path: str, body: Mapping[str, Any], timeout: float = 10.0) -> bytes:
        """Replace an object by compare-and-swap: `body` has the resourceVersion that was read.

        Args:
            path: the object's path.
            body: the whole object, as JSON values.
            timeout: seconds until the whole answer must have arrived. After a time-out it is not known
                whether the object was replaced.

        Returns:
            The object as it is now, as JSON.

        Raises:
            ConflictError: another program wrote it since; nothing was changed.
            ApiError: another one of its kinds.
        """
        return self._write(self.request("update", path), body, timeout)

    def delete_json(self, path: str, body: Mapping[str, Any], timeout: float = 10.0) -> bytes:
        """Delete an object; idempotent except for its answer: a repetition raises NotFoundError.

        Args:
            path: the object's path.
            body: DeleteOptions, as JSON values.
            timeout: seconds until the whole answer must have arrived. After a time-out it is not known
                whether the object was deleted.

        Returns:
            The object as it is being deleted, or a Status, as JSON.

        Raises:
            ApiError: one of its kinds.
        """
        return self._write(self.request("delete", path), body, timeout)

    def _write(self, request: ApiRequest, body: Mapping[str, Any], timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        limits = (min(CONNECT_TIMEOUT, timeout), timeout)
        response = self._open(request, {}, limits, {"Content-Type": "application/json"}, body)
        return self._body(request, response, deadline)

    def stream_lines(
        self,
        path: str,
        query: Mapping[str, str],
        connect_timeout: float = CONNECT_TIMEOUT,
        idle_timeout: float = 150.0,
    ) -> LineStream:
        """Open a watch.

        Args:
            path: the collection's path.
            query: the query's parameters, `watch` among them.
            connect_timeout: seconds until the connection must be open.
            idle_timeout: seconds without a single byte after which the stream counts as dead.

        Returns:
            Its lines as they arrive. An unfinished last line is dropped.

        Raises:
            ApiError: one of its kinds, here or while iterating.
        """
        request = self.request("watch", path)
        response = self._open(request, query, (connect_timeout, idle_timeout), {})
        _check_content_type(request, response)
        return LineStream(response, self._count)

    def open_websocket(
        self, request: ApiRequest, target: str, protocols: Iterable[str], timeout: float
    ) -> Any:  # noqa: ANN401 - a websocket.WebSocket
        """Open a websocket, once more with renewed credentials if they are rejected.

        Args:
            request: the request, as `request` returns it.
            target: path and query.
            protocols: subprotocols to offer, the best first.
            timeout: seconds for each step of the handshake.

        Raises:
            ApiError: one of its kinds.
        """
        used = self._transport
        try:
            return used.open_websocket(request, target, protocols, timeout)
        except UnauthorizedError:
            return self._renewed(used, request).open_websocket(request, target, protocols, timeout)

    def _count(self, size: int) -> None:
        with self._lock:
            self.bytes_read += size

    def _open(
        self,
        request: ApiRequest,
        query: Mapping[str, str],
        limits: tuple[float, float],
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> Response:
        """Send a request, once more with renewed credentials if they are rejected."""
        target = request.path + (f"?{urlencode(query)}" if query else "")
        sent = {"Accept": "application/json", "User-Agent": "nodeagent", **headers}

        def attempt(transport: Transport) -> Response:
            method = _METHODS.get(request.verb, "GET")
            return _accepted(request, transport.send(request, method, target, sent, body, limits))

        used = self._transport
        try:
            return attempt(used)
        except UnauthorizedError:
            return attempt(self._renewed(used, request))

    def _renewed(self, refused: Transport, request: ApiRequest) -> Transport:
        """Load the configuration again: a tokenFile and an exec plugin may have newer credentials.

        If several threads are rejected at once, one of them does it for all.
        """
        with self._lock:
            if self._transport is refused:
                try:
                    self._transport = self._load()
                except SourceError as error:
                    raise UnauthorizedError(f"{request}: credentials can't be renewed: {error}") from error
                refused.close()
            return self._transport

    def _body(
        self,
        request: ApiRequest,
        response: Response,
        deadline: float,
        most: int = LARGEST_ANSWER,
        *,
        json: bool = True,
    ) -> bytes:
        try:
            if json:
                _check_content_type(request, response)
            return b"".join(_until(deadline, most, request, response))
        finally:
            self._count(response.wire_bytes)
            # After a whole answer, the next request can use the connection; a broken one is closed.
            response.close()


def _accepted(request: ApiRequest, response: Response) -> Response:
    """Return the response if it is a success; raise the error otherwise."""
    if 200 <= response.status < 300:
        return response
    told = b""
    try:
        for piece in response.pieces(_LONGEST_REFUSAL):
            told += piece
            if len(told) > _LONGEST_REFUSAL:
                break
    finally:
        response.close()
    raise refusal(request, response.status, told[:_LONGEST_REFUSAL], response.header("Retry-After"))


def _until(deadline: float, most: int, request: ApiRequest, response: Response) -> Iterable[bytes]:
    """Yield the body's pieces; an answer that does not end is given up at the deadline or the limit."""
    left = most
    for piece in response.pieces(_READ_AT_ONCE):
        left -= len(piece)
        if left < 0:
            raise TooLargeError(f"{request}: the answer has more than {most} bytes; given up")
        if time.monotonic() > deadline:
            raise UnreachableError(f"{request}: the answer took too long; given up")
        yield piece


def _check_content_type(request: ApiRequest, response: Response) -> None:
    kind = response.header("Content-Type")
    if not kind.startswith("application/json"):
        response.close()
        raise NotJsonError(
            f"{request}: the answer is {kind or 'of no content type'}, not JSON: check that this is an API "
            "server, and not a proxy or a login page in front of it"
        )
