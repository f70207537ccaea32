"""The connection to the API server: raw HTTP, with the credentials of a pod or of a kubeconfig.

Answers stay bytes; the decoders take the few fields on which decisions depend.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlencode

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.credentials import Kubeconfig, ServiceAccount
from nodeagent.sources.kubernetes.errors import (
    ApiError,
    ApiPath,
    ApiRequest,
    NoConnectionError,
    NotJsonError,
    ServerTroubleError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    refusal,
)
from nodeagent.sources.kubernetes.transport import Credentials, Response, Transport

_LOG = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0
"""Seconds until a connection must be open: a SYN may be lost twice (retransmitted after 1 and 3 s)."""

_METHODS = {"create": "POST", "update": "PUT", "delete": "DELETE"}
_READ_AT_ONCE = 262144
LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are read into memory, unpacked: a page of 500 Ingresses has about 1 MB."""
_BEGINS_JSON = b'{["-0123456789tfn \t\r\n'
"""What compressed bytes do not begin with."""
_LONGEST_REFUSAL = 65536
"""Bytes of an error answer that are read: a Status is far smaller."""


def connect(
    kubeconfig: Path | None = None, environment: Mapping[str, str] = os.environ, *, context: str = ""
) -> "Connection":
    """Find the API server and the credentials; makes no connection yet (an exec plugin is run, though).

    Args:
        kubeconfig: the file to use; None for the ServiceAccount in a pod (KUBERNETES_SERVICE_HOST is set),
            else $KUBECONFIG, else ~/.kube/config, as kubectl does it.
        environment: the process's environment.
        context: the kubeconfig's context to use; empty for its current one.

    Returns:
        The connection; close it in the end.

    Raises:
        SourceError: there is no usable configuration; the text names the file.
    """
    if kubeconfig is None and not context and environment.get("KUBERNETES_SERVICE_HOST"):
        return Connection(lambda: ServiceAccount(environment))
    path = str(kubeconfig) if kubeconfig else environment.get("KUBECONFIG") or str(Path("~/.kube/config"))
    return Connection(lambda: Kubeconfig(path, context))


_Result = TypeVar("_Result")


class Connection:
    """Raw HTTP to one API server; every method may be called from any thread.

    Attributes:
        bytes_read: bytes of answers' bodies so far, as they came over the wire (lists are compressed).
        compression: whether lists are requested compressed; given up until the next start once that has
            failed, for whatever reason, where an uncompressed list arrived.

    Args:
        load: returns the credentials; called again when they are rejected.

    Raises:
        SourceError: whatever `load` raises.
    """

    def __init__(self, load: Callable[[], Credentials]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._transport = Transport(load())
        self.bytes_read = 0
        self.compression = True

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
        return self._transport.target.host, self._transport.target.port

    def request(self, verb: str, path: str) -> ApiRequest:
        """Return a request as errors name it: with the server, and with the proxy in front of it, if any."""
        host, port = self.server
        through = f" through the proxy {proxy}" if (proxy := self._transport.target.proxy) else ""
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
        lists = bool(about.resource and not about.name)
        request = self.request("list" if lists else "get", path)

        def read(headers: Mapping[str, str]) -> bytes:
            return self._exchange(request, query or {}, timeout, headers, most=most)

        if not (lists and self.compression):
            return read({})
        try:
            return read({"Accept-Encoding": "gzip"})
        except Exception as error:
            if _is_refusal(error):
                raise
            failure = error
        answer = read({})
        if self.compression:  # no other thread has noticed it meanwhile
            self.compression = False
            _LOG.info(
                "Could not read a compressed list; lists are read uncompressed until the next start",
                extra={"fields": {"err": str(failure)}},
                exc_info=None if isinstance(failure, SourceError) else failure,
            )
        return answer

    def get_text(self, path: str, query: Mapping[str, str], timeout: float, most: int) -> bytes:
        """Read something that is not JSON, a container's log; as `get_json` else."""
        return self._exchange(self.request("get", path), query, timeout, {"Accept": "*/*"}, most=most)

    def write(
        self,
        verb: Literal["create", "update", "delete"],
        path: str,
        body: Mapping[str, Any],
        timeout: float = 10.0,
    ) -> bytes:
        """Create an object, replace it by compare-and-swap, or delete it.

        None is repeated after a failure: after a time-out it is not known whether it was done.

        Args:
            verb: what to do.
            path: the collection's path to create, otherwise the object's.
            body: JSON values: the object (to replace it: with the resourceVersion that was read), or options.
            timeout: seconds until the whole answer must have arrived.

        Returns:
            The object as it is now, or a Status, as JSON.

        Raises:
            AlreadyExistsError: there is such an object already.
            ConflictError: another program wrote it since; nothing was changed.
            NotFoundError: there is no such object.
            ApiError: another one of its kinds.
        """
        headers = {"Content-Type": "application/json"}
        return self._exchange(self.request(verb, path), {}, timeout, headers, body)

    def open_stream(self, path: str, query: Mapping[str, str], idle_timeout: float = 150.0) -> Response:
        """Open a watch.

        Args:
            path: the collection's path.
            query: the query's parameters, `watch` among them.
            idle_timeout: seconds without a single byte after which the stream counts as dead.

        Returns:
            The answer, whose body `watch_events.lines` reads.

        Raises:
            ApiError: one of its kinds.
        """
        request = self.request("watch", path)
        response = self._open(request, query, (CONNECT_TIMEOUT, idle_timeout), {})
        _check_content_type(request, response)
        return response

    def authorized(self, request: ApiRequest, attempt: Callable[[Transport], _Result]) -> _Result:
        """Return what an attempt returns, made once more with renewed credentials if they are rejected."""
        used = self._transport
        try:
            return attempt(used)
        except UnauthorizedError:
            return attempt(self._renewed(used, request))

    def count(self, size: int) -> None:
        """Add to `bytes_read`."""
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

        return self.authorized(request, attempt)

    def _renewed(self, refused: Transport, request: ApiRequest) -> Transport:
        """Load the configuration again: a tokenFile and an exec plugin may have newer credentials.

        If several threads are rejected at once, one of them does it for all.
        """
        with self._lock:
            if self._transport is refused:
                try:
                    self._transport = Transport(self._load())
                except SourceError as error:
                    raise UnauthorizedError(f"{request}: credentials can't be renewed: {error}") from error
                refused.close()
            return self._transport

    def _exchange(  # noqa: PLR0913 - a request's parts
        self,
        request: ApiRequest,
        query: Mapping[str, str],
        timeout: float,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        *,
        most: int = LARGEST_ANSWER,
    ) -> bytes:
        """Send a request, and return the body of its answer."""
        deadline = time.monotonic() + timeout
        response = self._open(request, query, (min(CONNECT_TIMEOUT, timeout), timeout), headers, body)
        json = headers.get("Accept") is None
        try:
            if json:
                _check_content_type(request, response)
            found = b"".join(_until(deadline, most, request, response))
            if json and (not found or found[0] not in _BEGINS_JSON):
                raise NotJsonError(f"{request}: the answer is not JSON: it begins with {found[:8]!r}")
            return found
        finally:
            self.count(response.wire_bytes)
            # After a whole answer, the next request can use the connection; a broken one is closed.
            response.close()


def _is_refusal(error: Exception) -> bool:
    """Whether the server would answer the same to the same request without compression."""
    if isinstance(error, NoConnectionError):
        return True
    may_pass = isinstance(error, ServerTroubleError | UnreachableError | NotJsonError)
    return isinstance(error, ApiError) and (error.retry_after is not None or not may_pass)


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
