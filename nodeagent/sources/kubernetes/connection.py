"""The connection to the API server: the official client's requests, with the raw bytes of their answers.

The decoders take the few fields on which decisions depend. The client costs 20 MB and 0.3 s: this module is
imported where there is a cluster to ask.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import urllib3
from kubernetes.client import ApiClient, ApiException
from urllib3.exceptions import ConnectTimeoutError, HTTPError, ProxyError, ReadTimeoutError

from nodeagent.errors import SourceError, one_line
from nodeagent.sources.kubernetes.credentials import kubeconfig, new_client, service_account
from nodeagent.sources.kubernetes.errors import (
    ApiPath,
    ApiRequest,
    NoConnectionError,
    NotJsonError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    failure_words,
    refusal,
)

_CONNECT_SECONDS = 10.0
"""Until a connection must be open: a SYN may be lost twice (retransmitted after 1 and 3 s)."""
_METHODS = {"create": "POST", "update": "PUT", "delete": "DELETE"}
_JSON = "application/json"
_READ_AT_ONCE = 262144
LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are read into memory, unpacked: a page of 500 Ingresses has about 1 MB."""
_LONGEST_REFUSAL = 65536
"""Bytes of an error answer that are read: a Status is far smaller."""


def connect(
    file: Path | None = None, environment: Mapping[str, str] = os.environ, *, context: str = ""
) -> "Connection":
    """Find the API server and the credentials; makes no connection yet (an exec plugin is run, though).

    Args:
        file: the kubeconfig; None for the ServiceAccount in a pod (KUBERNETES_SERVICE_HOST is set), else
            $KUBECONFIG, else ~/.kube/config, as kubectl does it.
        environment: the process's environment.
        context: the kubeconfig's context to use; empty for its current one.

    Returns:
        The connection; close it in the end.

    Raises:
        SourceError: there is no usable configuration; the text names the file.
    """
    if file is None and not context and environment.get("KUBERNETES_SERVICE_HOST"):
        return Connection(lambda: service_account(environment))
    path = str(file) if file else environment.get("KUBECONFIG") or str(Path("~/.kube/config"))
    return Connection(lambda: kubeconfig(path, context))


_Result = TypeVar("_Result")


class Connection:
    """Requests to one API server; every method may be called from any thread.

    Attributes:
        bytes_read: bytes of answers' bodies so far, as they came over the wire (lists are compressed).

    Args:
        load: returns the official client; called again when the server does not accept its credentials.

    Raises:
        SourceError: whatever `load` raises.
    """

    def __init__(self, load: Callable[[], ApiClient]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._client = load()
        self.bytes_read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections; those in use end with their answers. The next request opens a new one."""
        self._client.close()

    @property
    def server(self) -> tuple[str, int]:
        """Host (a name or an address) and port of the API server: never to be redirected."""
        url = urlsplit(self._client.configuration.host)
        return url.hostname or "", url.port or (80 if url.scheme == "http" else 443)

    def request(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> ApiRequest:
        """Return a request, with the server, and with the proxy in front of it, if any."""
        server = urlsplit(self._client.configuration.host).netloc.rpartition("@")[2]
        proxy = self._client.rest_client.pool_manager.proxy
        through = f" through the proxy {proxy.host}:{proxy.port}" if proxy else ""
        return ApiRequest(verb, path, f"{server}{through}", query or {}, headers or {}, body)

    def get_json(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        *,
        compressed: bool = False,
    ) -> bytes:
        """Read an object or a list.

        Args:
            path: its path.
            query: the query's parameters.
            timeout: seconds until the whole answer must have arrived.
            compressed: whether the server may compress it; API servers do so with large lists.

        Returns:
            The body: JSON by its content type, not parsed yet.

        Raises:
            TooLargeError: it has more than `LARGEST_ANSWER` bytes.
            ApiError: another one of its kinds.
        """
        about = ApiPath.parse(path)
        verb = "list" if about.resource and not about.name else "get"
        headers = {"Accept-Encoding": "gzip"} if compressed else {}
        return self._exchange(self.request(verb, path, query, headers), timeout, LARGEST_ANSWER)

    def get_text(self, path: str, query: Mapping[str, str], timeout: float, most: int) -> bytes:
        """Read something that is not JSON, a container's log; as `get_json` else."""
        return self._exchange(self.request("get", path, query, {"Accept": "*/*"}), timeout, most)

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
        return self._exchange(self.request(verb, path, {}, headers, body), timeout, LARGEST_ANSWER)

    def open_stream(self, path: str, query: Mapping[str, str], idle_timeout: float = 150.0) -> "Stream":
        """Open a watch, over a new connection.

        Args:
            path: the collection's path.
            query: the query's parameters, `watch` among them.
            idle_timeout: seconds without a single byte after which the stream counts as dead.

        Returns:
            The answer, whose body `listing.lines` reads.

        Raises:
            ApiError: one of its kinds.
        """
        limits = (_CONNECT_SECONDS, idle_timeout)
        return self._open(self.request("watch", path, query), limits, new_connection=True)

    def authorized(
        self, request: ApiRequest, attempt: Callable[[ApiClient, urllib3.HTTPHeaderDict], _Result]
    ) -> _Result:
        """Return what an attempt returns; it is given the client, and the headers that say who asks.

        It is made once more, with the configuration as it is then, if the credentials are rejected. So is a
        read whose connection was lost, or not trusted: it may have been kept too long, or CA, certificate or
        address were replaced.
        """
        used = self._client
        try:
            return attempt(used, self._headers(request, used))
        except UnauthorizedError:
            renewed = self._renewed(used, request)
        except UnreachableError as error:
            no_answer = isinstance(error, NoConnectionError) or isinstance(error.__cause__, ReadTimeoutError)
            if no_answer or request.verb in _METHODS:
                raise
            renewed = self._renewed(used, request)
        return attempt(renewed, self._headers(request, renewed))

    def _count(self, size: int) -> None:
        with self._lock:
            self.bytes_read += size

    def _headers(self, request: ApiRequest, client: ApiClient) -> urllib3.HTTPHeaderDict:
        """Return who asks; the client refreshes it: it reads a token's file, or runs an exec plugin."""
        headers = urllib3.HTTPHeaderDict(client.default_headers)
        try:
            with self._lock:
                authorization = client.configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # of whatever kind the client's refresh meets
            raise UnauthorizedError(f"{request}: the credentials can't be read: {one_line(error)}") from error
        if authorization:
            headers.add("authorization", authorization.strip())
        return headers

    def _renewed(self, refused: ApiClient, request: ApiRequest) -> ApiClient:
        """Load the configuration again; if several threads need it at once, one of them does it for all."""
        with self._lock:
            if self._client is refused:
                try:
                    self._client = self._load()
                except SourceError as error:
                    raise UnauthorizedError(f"{request}: credentials can't be renewed: {error}") from error
            return self._client

    def _open(
        self, request: ApiRequest, limits: tuple[float, float], *, new_connection: bool = False
    ) -> "Stream":
        """Send a request, and return its answer, of which only the head was read."""

        def attempt(client: ApiClient, who: urllib3.HTTPHeaderDict) -> Stream:
            used = new_client(client.configuration, {}) if new_connection else client
            who.extend({"Accept": _JSON, "User-Agent": "nodeagent", **request.headers})
            query = f"?{urlencode(request.query)}" if request.query else ""
            url = client.configuration.host + request.path + query
            method = _METHODS.get(request.verb, "GET")
            with _network(request):
                answer: urllib3.HTTPResponse = used.call_api(
                    method, url, who, request.body, _request_timeout=limits
                ).response
            stream = Stream(request, answer, self._count)
            if not 200 <= answer.status < 300:
                told = b""
                with suppress(TooLargeError):  # it is no Status: the number alone says what it is
                    told = stream.read(_LONGEST_REFUSAL, time.monotonic() + limits[1])
                raise refusal(request, answer.status, told, answer.headers.get("Retry-After", ""))
            kind = answer.headers.get("Content-Type", "")
            if who["Accept"] == _JSON and not kind.startswith(_JSON):
                stream.close()
                raise NotJsonError(
                    f"{request}: the answer is {kind or 'of no content type'}, not JSON: check that this is "
                    "an API server, and not a proxy or a login page in front of it"
                )
            return stream

        return self.authorized(request, attempt)

    def _exchange(self, request: ApiRequest, timeout: float, most: int) -> bytes:
        """Send a request, and return the body of its answer."""
        deadline = time.monotonic() + timeout
        limits = (min(_CONNECT_SECONDS, timeout), timeout)
        return self._open(request, limits).read(most, deadline)


class Stream:
    """The body of an answer. Any failure of the network while it is read raises UnreachableError.

    Args:
        request: what was requested.
        answer: what came, of which only the head was read.
        count: called with the bytes read over the wire.
    """

    def __init__(
        self, request: ApiRequest, answer: urllib3.HTTPResponse, count: Callable[[int], None]
    ) -> None:
        self._request = request
        self._answer = answer
        self._count = count

    def read1(self, most: int) -> bytes:
        """Return what has arrived, unpacked; wait for a byte; empty at the end."""
        before = self._answer.tell()
        try:
            with _network(self._request):
                return self._answer.read1(most, decode_content=True)
        finally:
            self._count(self._answer.tell() - before)

    def read(self, most: int, deadline: float) -> bytes:
        """Return all of it, and end it: the next request can use the connection, if that is not broken.

        Raises:
            TooLargeError: it has more than `most` bytes.
            UnreachableError: it has not arrived by the deadline, either.
        """
        found = bytearray()
        try:
            while piece := self.read1(_READ_AT_ONCE):
                found += piece
                if len(found) > most:
                    raise TooLargeError(f"{self._request}: the answer has more than {most} bytes; given up")
                if time.monotonic() > deadline:
                    raise UnreachableError(f"{self._request}: the answer took too long; given up")
            return bytes(found)
        finally:
            self.close()

    def close(self) -> None:
        """Give up what is not read yet. Safe to call again."""
        self._answer.close()

    def interrupt(self) -> None:
        """Make another thread that reads see the end at once. Safe to call again."""
        with suppress(ValueError, RuntimeError, OSError):  # it has ended, or is closed at this moment
            self._answer.shutdown()


@contextmanager
def _network(request: ApiRequest) -> Iterator[None]:
    """Turn failures of the network within into UnreachableError."""
    try:
        yield
    except (HTTPError, ApiException, OSError, HTTPException, ValueError) as error:
        kind = NoConnectionError if isinstance(error, ConnectTimeoutError | ProxyError) else UnreachableError
        raise kind(
            f"{request}: {failure_words(error)}; check that the server is up, and that its address and CA "
            "are right"
        ) from error
