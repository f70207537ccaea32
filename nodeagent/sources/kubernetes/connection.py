"""The connection to the API server: raw HTTP, by the official client's configuration and transport.

Answers stay bytes, for the decoders to take the few fields that decisions rest on.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes import official
from nodeagent.sources.kubernetes.errors import (
    ApiPath,
    Asked,
    NotJsonError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    refusal,
)
from nodeagent.sources.kubernetes.lines import LineStream

CONNECT_TIMEOUT = 10.0
"""Seconds until a connection must stand: a SYN may be lost twice (retransmitted after 1 and 3 s)."""

_METHODS = {"create": "POST", "update": "PUT", "delete": "DELETE"}
_READ_AT_ONCE = 262144
LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are read into memory, unpacked: a page of 500 Ingresses has about 1 MB."""
_LONGEST_REFUSAL = 65536
"""Bytes of a refusal that are read: a Status is far smaller."""


def connect(kubeconfig: Path | None = None, environment: Mapping[str, str] = os.environ) -> "Connection":
    """Finds the API server and the credentials; makes no connection yet (an exec plugin is run, though).

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
        return Connection(lambda: official.new_client(None))
    path = str(kubeconfig) if kubeconfig else environment.get("KUBECONFIG") or str(Path("~/.kube/config"))
    return Connection(lambda: official.new_client(path))


class Connection:
    """Raw HTTP to one API server; every method may be called from any thread.

    Attributes:
        bytes_read: bytes of answers' bodies so far, as they came over the wire (lists are compressed).

    Args:
        load: gives a new `kubernetes.client.ApiClient`; called again when credentials are refused.

    Raises:
        SourceError: whatever `load` raises.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._client = load()
        self.bytes_read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections; those in use end with their answers."""
        self._client.rest_client.pool_manager.clear()

    @property
    def server(self) -> tuple[str, int]:
        """Host (a name or an address) and port of the API server: never to be redirected."""
        url = urlsplit(self._client.configuration.host)
        return url.hostname or "", url.port or (80 if url.scheme == "http" else 443)

    def asked(self, verb: str, path: str) -> Asked:
        """Gives a request as errors name it: with the server, and the proxy where one stands before it."""
        host, port = self.server
        proxy = self._client.rest_client.pool_manager.proxy
        through = f" through the proxy {proxy.host}:{proxy.port}" if proxy else ""
        return Asked(verb, path, f"[{host}]:{port}{through}" if ":" in host else f"{host}:{port}{through}")

    def get_json(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        most: int = LARGEST_ANSWER,
    ) -> bytes:
        """Reads an object or a list.

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
        asked = self.asked("list" if about.resource and not about.name else "get", path)
        deadline = time.monotonic() + timeout
        limits = (min(CONNECT_TIMEOUT, timeout), timeout)
        response = self._open(asked, query or {}, limits, {"Accept-Encoding": "gzip"})
        return self._body(asked, response, deadline, most)

    def get_text(
        self, path: str, query: Mapping[str, str], timeout: float = 60.0, most: int = LARGEST_ANSWER
    ) -> bytes:
        """Reads what is no JSON: a container's log.

        Args:
            path: its path.
            query: the query's parameters.
            timeout: seconds until the whole answer must have arrived.
            most: the bytes that are read into memory.

        Raises:
            TooLargeError: it has more than `most` bytes.
            ApiError: another one of its kinds.
        """
        asked = self.asked("get", path)
        deadline = time.monotonic() + timeout
        limits = (min(CONNECT_TIMEOUT, timeout), timeout)
        response = self._open(asked, query, limits, {"Accept": "*/*"})
        return self._body(asked, response, deadline, most, json=False)

    def post_json(self, path: str, body: Mapping[str, Any], timeout: float = 10.0) -> bytes:
        """Creates an object; not idempotent: a repetition answers AlreadyExistsError.

        Args:
            path: the collection's path.
            body: the object, as JSON values.
            timeout: seconds until the whole answer must have arrived.

        Returns:
            The object as created, as JSON.

        Raises:
            ApiError: one of its kinds.
        """
        return self._write(self.asked("create", path), body, timeout)

    def put_json(self, path: str, body: Mapping[str, Any], timeout: float = 10.0) -> bytes:
        """Replaces an object by compare-and-swap: `body` bears the resourceVersion that was read.

        Args:
            path: the object's path.
            body: the whole object, as JSON values.
            timeout: seconds until the whole answer must have arrived. After a time-out it is not known
                whether the object was replaced.

        Returns:
            The object as it stands now, as JSON.

        Raises:
            ConflictError: somebody else wrote it since; nothing was changed.
            ApiError: another one of its kinds.
        """
        return self._write(self.asked("update", path), body, timeout)

    def delete_json(self, path: str, body: Mapping[str, Any], timeout: float = 10.0) -> bytes:
        """Deletes an object; idempotent but for its answer: a repetition raises NotFoundError.

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
        return self._write(self.asked("delete", path), body, timeout)

    def _write(self, asked: Asked, body: Mapping[str, Any], timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        limits = (min(CONNECT_TIMEOUT, timeout), timeout)
        response = self._open(asked, {}, limits, {"Content-Type": "application/json"}, body)
        return self._body(asked, response, deadline)

    def stream_lines(
        self,
        path: str,
        query: Mapping[str, str],
        connect_timeout: float = CONNECT_TIMEOUT,
        idle_timeout: float = 150.0,
    ) -> LineStream:
        """Opens a watch.

        Args:
            path: the collection's path.
            query: the query's parameters, `watch` among them.
            connect_timeout: seconds until the connection must stand.
            idle_timeout: seconds without a single byte after which the stream counts as dead.

        Returns:
            Its lines as they arrive. An unfinished last line is dropped.

        Raises:
            ApiError: one of its kinds, here or while iterating.
        """
        asked = self.asked("watch", path)
        response = self._open(asked, query, (connect_timeout, idle_timeout), {})
        _check_content_type(asked, response)
        return LineStream(response, lambda read: official.translated(asked, read), self._count)

    def open_websocket(self, asked: Asked, target: str, protocols: Iterable[str], timeout: float) -> Any:  # noqa: ANN401 - a websocket.WebSocket
        """Opens a websocket, once more with renewed credentials if they are refused.

        Args:
            asked: the request, as `asked` gives it.
            target: path and query.
            protocols: subprotocols to offer, the best first.
            timeout: seconds for each step of the handshake.

        Raises:
            ApiError: one of its kinds.
        """

        def attempt(client: Any) -> Any:  # noqa: ANN401 - the client's ApiClient
            headers = {"User-Agent": "nodeagent"}
            with self._lock:
                official.authorize(client, headers, asked, "GET")
            return official.open_websocket(client, asked, target, headers, protocols, timeout)

        used = self._client
        try:
            return attempt(used)
        except UnauthorizedError:
            return attempt(self._renewed(used, asked))

    def _count(self, size: int) -> None:
        with self._lock:
            self.bytes_read += size

    def _open(
        self,
        asked: Asked,
        query: Mapping[str, str],
        limits: tuple[float, float],
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - urllib3's response
        """Sends a request, once more with renewed credentials if they are refused."""
        used = self._client
        try:
            return self._send(used, asked, query, limits, headers, body)
        except UnauthorizedError:
            return self._send(self._renewed(used, asked), asked, query, limits, headers, body)

    def _renewed(self, refused: Any, asked: Asked) -> Any:  # noqa: ANN401 - the client's ApiClient
        """Loads the configuration anew: a tokenFile and an exec plugin may have something fresher.

        Of several threads refused at once, one does it for all.
        """
        with self._lock:
            if self._client is refused:
                try:
                    self._client = self._load()
                except SourceError as error:
                    raise UnauthorizedError(f"{asked}: credentials can't be renewed: {error}") from error
                refused.rest_client.pool_manager.clear()
            return self._client

    def _send(  # noqa: PLR0913, PLR0917 - a request's parts
        self,
        client: Any,  # noqa: ANN401 - the client's ApiClient
        asked: Asked,
        query: Mapping[str, str],
        limits: tuple[float, float],
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
    ) -> Any:  # noqa: ANN401 - urllib3's response
        sent = {"Accept": "application/json", "User-Agent": "nodeagent", **headers}
        method = _METHODS.get(asked.verb, "GET")
        # The client's refresh hook reads token files and runs exec plugins: one thread at a time.
        with self._lock:
            official.authorize(client, sent, asked, method)
        url = client.configuration.host + asked.path + (f"?{urlencode(query)}" if query else "")
        response = official.translated(
            asked,
            lambda: client.rest_client.request(method, url, sent, body, _request_timeout=limits).response,
        )
        if 200 <= response.status < 300:
            return response
        try:
            told = official.translated(asked, lambda: response.read(_LONGEST_REFUSAL, decode_content=True))
        finally:
            response.close()
        raise refusal(asked, response.status, told, response.headers)

    def _body(
        self,
        asked: Asked,
        response: Any,  # noqa: ANN401 - urllib3's
        deadline: float,
        most: int = LARGEST_ANSWER,
        *,
        json: bool = True,
    ) -> bytes:
        try:
            if json:
                _check_content_type(asked, response)
            return official.translated(asked, lambda: b"".join(_until(deadline, most, asked, response)))
        finally:
            self._count(response.tell())
            # After a whole answer this leaves the connection in the pool; a broken one is closed.
            if not response.closed:
                response.close()


def _until(deadline: float, most: int, asked: Asked, response: Any) -> Iterable[bytes]:  # noqa: ANN401 - urllib3's
    """Yields the body's pieces; an answer that goes on for ever is given up at the deadline or the bound."""
    left = most
    for piece in response.stream(_READ_AT_ONCE, decode_content=True):
        left -= len(piece)
        if left < 0:
            raise TooLargeError(f"{asked}: the answer has more than {most} bytes; given up")
        if time.monotonic() > deadline:
            raise UnreachableError(f"{asked}: the answer took too long; given up")
        yield piece


def _check_content_type(asked: Asked, response: Any) -> None:  # noqa: ANN401 - urllib3's
    kind = response.headers.get("Content-Type", "")
    if not kind.startswith("application/json"):
        response.close()
        raise NotJsonError(
            f"{asked}: the answer is {kind or 'of no content type'}, not JSON: is this an API server, "
            "or does a proxy or a login page stand before it?"
        )
