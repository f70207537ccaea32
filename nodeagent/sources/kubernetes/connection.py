"""The connection to the API server: the official client's requests, and programs run in containers of pods.

Answers are raw bytes, of which the decoders take the few fields on which decisions depend. The client costs
28 MB and 0.3 s: this module is imported where there is a cluster to ask.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPException
from math import inf
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Literal, Self
from urllib.parse import urlencode, urlsplit

import msgspec
from kubernetes.client import ApiClient, ApiException
from kubernetes.stream.ws_client import create_websocket, get_websocket_url
from urllib3 import HTTPHeaderDict, HTTPResponse
from urllib3.exceptions import ConnectTimeoutError, HTTPError, ProxyError

from nodeagent.errors import one_line
from nodeagent.sources.kubernetes.credentials import kubeconfig, new_client, service_account
from nodeagent.sources.kubernetes.errors import (
    NO_API_SERVER,
    ApiError,
    ApiPath,
    ApiRequest,
    NoConnectionError,
    NotJsonError,
    Status,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
    failure_words,
    refusal,
)
from nodeagent.typed_values import from_json

_CONNECT_SECONDS = 10.0
"""Until a connection must be open: a SYN may be lost twice (retransmitted after 1 and 3 s)."""
_ANSWER_SECONDS = 10.0
_PATIENCE_SECONDS = 60.0
"""What a command that reads once waits for one answer, and for all of them."""
_METHODS = {"create": "POST", "update": "PUT", "delete": "DELETE"}
_JSON = "application/json"
_FAILURES = (HTTPError, ApiException, OSError, HTTPException, ValueError)
"""What the client raises if the network fails, or if what comes is not HTTP."""
_READ_AT_ONCE = 262144
LARGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of an answer that are read into memory, unpacked: a page of 500 Ingresses has about 1 MB."""
_LONGEST_REFUSAL = 65536
"""Bytes of an error answer that are read: a Status is far smaller."""
_STDOUT, _STDERR, _STATUS = 1, 2, 3
"""The channels of v4.channel.k8s.io (KEP-4006): each message begins with a byte that says which it is of."""
_CLOSE = 8
"""The websocket's opcode of the end."""
_LARGEST_OUTPUT = 16 << 20
"""Bytes of standard output, and of standard error, that are read."""


def connect(
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    context: str = "",
    once: bool = False,
) -> "Connection":
    """Find the API server and the credentials; make no connection yet (an exec plugin is run, though).

    Without a kubeconfig: the ServiceAccount in a pod, else $KUBECONFIG, else ~/.kube/config, as kubectl does
    it. `once`: a person waits, for all that is read, at most a minute. Raises SourceError.
    """
    if file is None and not context and environment.get("KUBERNETES_SERVICE_HOST"):
        return Connection(partial(service_account, environment), once=once)
    path = str(file) if file else environment.get("KUBECONFIG") or str(Path("~/.kube/config"))
    return Connection(partial(kubeconfig, path, context), once=once)


class Connection:
    """Requests to one API server, from any thread; each raises ApiError.

    `load` returns the official client, or raises SourceError; it is called again when the client fails.
    `bytes_read` are those of answers' bodies, as they came over the wire (lists are compressed).
    """

    def __init__(self, load: Callable[[], ApiClient], *, once: bool = False) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._client = load()
        # From now on: a plugin may have waited for a login.
        self._until = time.monotonic() + _PATIENCE_SECONDS if once else inf
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
        """Host (a name or an address) and port of the API server."""
        url = urlsplit(self._client.configuration.host)
        return url.hostname or "", url.port or (80 if url.scheme == "http" else 443)

    def get_json(
        self, path: str, query: Mapping[str, str] = {}, timeout: float = 60.0, *, compressed: bool = False
    ) -> bytes:
        """Read an object or a list within a time; the body is JSON by its content type, not parsed yet."""
        about = ApiPath.parse(path)
        verb = "list" if about.resource and not about.name else "get"
        headers = {"Accept-Encoding": "gzip"} if compressed else {}
        request = self._request(verb, path, query, headers)
        if self._until < inf:
            timeout = min(timeout, _ANSWER_SECONDS, self._until - time.monotonic())
        if timeout <= 0:
            words = f"not asked: other answers took {_PATIENCE_SECONDS:.0f} s; try again"
            raise UnreachableError(f"{request}: {words}")
        return self._exchange(request, timeout)

    def get_text(self, path: str, query: Mapping[str, str], timeout: float) -> bytes:
        """Read something that is not JSON, a container's log; as `get_json` else."""
        return self._exchange(self._request("get", path, query, {"Accept": "*/*"}), timeout)

    def write(
        self,
        verb: Literal["create", "update", "delete"],
        path: str,
        body: Mapping[str, Any],
        timeout: float = 10.0,
    ) -> bytes:
        """Create an object, replace it by compare-and-swap, or delete it; return it, or a Status, as JSON.

        To replace it, `body` has the resourceVersion that was read; to delete it, it has options. Nothing is
        repeated after a failure: after a time-out it is not known whether it was done.
        """
        return self._exchange(self._request(verb, path, body=body), timeout)

    def open_stream(self, path: str, query: Mapping[str, str], idle_timeout: float = 150.0) -> "Stream":
        """Open a watch of a collection, which counts as dead after `idle_timeout` seconds without a byte."""
        return self._open(self._request("watch", path, query), idle_timeout)

    def execute(
        self, pod: str, container: str, command: list[str], timeout: float
    ) -> CompletedProcess[bytes]:
        """Run a program in a container of the pod with that path; without a terminal, input or shell.

        An exit code other than 0 is not an error; standard error then has at least the server's words. After
        an ApiError, it is unknown whether it ran. RBAC: `get` on pods/exec, since 1.35 `create` as well.
        """
        request = self._request("create", f"{pod}/exec")
        query = [("container", container), ("stdout", "true"), ("stderr", "true"), ("command", command)]
        ended: Future[dict[int, bytearray]] = Future()

        def run() -> None:
            try:
                ended.set_result(self._streams(request, query, timeout))
            except Exception as error:  # noqa: BLE001 - raised by the thread that waits
                ended.set_exception(error)

        # The client opens a websocket without a time limit: a thread may stay behind, until it has one.
        threading.Thread(target=run, name="exec", daemon=True).start()
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
        stderr = bytes(streams[_STDERR]).strip() or (status.message.encode() if code else b"")
        return CompletedProcess(command, code, bytes(streams[_STDOUT]), stderr)

    def _request(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] = {},
        headers: Mapping[str, str] = {},
        body: Mapping[str, Any] | None = None,
    ) -> ApiRequest:
        url = urlsplit(self._client.configuration.host)
        server = f"{url.netloc.rpartition('@')[2]}{url.path}"
        proxy = self._client.rest_client.pool_manager.proxy
        through = f" through the proxy {proxy.host}:{proxy.port}" if proxy else ""
        return ApiRequest(verb, path, f"{server}{through}", query, headers, body)

    def _access(
        self, request: ApiRequest, failed: ApiClient | None = None
    ) -> tuple[ApiClient, HTTPHeaderDict]:
        """Return the client, and the headers that say who asks.

        One that has `failed` is loaded again first, by one of several threads for all.
        """
        try:
            with self._lock:
                if self._client is failed:
                    self._client = self._load()
                client = self._client
                # The client refreshes it: it reads a token's file each minute, or runs an exec plugin.
                authorization = client.configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # of whatever kind the client's refresh meets
            raise UnauthorizedError(f"{request}: credentials can't be renewed: {one_line(error)}") from error
        headers = HTTPHeaderDict(client.default_headers)
        if authorization:
            headers.add("authorization", authorization.strip())
        return client, headers

    def _open(self, request: ApiRequest, timeout: float) -> "Stream":
        """Send a request, and return its answer, of which only the head was read.

        After any failure the configuration is loaded again: CA, certificate or address may be new. Then the
        request is made once more if the credentials were rejected; a read also if a connection was lost.
        """
        deadline = time.monotonic() + timeout
        used = self._client
        try:
            return self._send(request, timeout, *self._access(request))
        except (UnauthorizedError, UnreachableError) as error:
            again = self._access(request, failed=used)
            left = timeout if request.verb == "watch" else deadline - time.monotonic()
            lost = request.verb not in _METHODS and left > 0 and not isinstance(error, NoConnectionError)
            if not lost and not isinstance(error, UnauthorizedError):
                raise
        return self._send(request, max(left, 1.0), *again)

    def _send(
        self, request: ApiRequest, timeout: float, client: ApiClient, headers: HTTPHeaderDict
    ) -> "Stream":
        headers.extend({"Accept": _JSON, "Content-Type": _JSON, "User-Agent": "nodeagent", **request.headers})
        query = f"?{urlencode(request.query)}" if request.query else ""
        url = f"{client.configuration.host}{request.path}{query}"
        method, limits = _METHODS.get(request.verb, "GET"), (min(_CONNECT_SECONDS, timeout), timeout)
        try:
            if request.verb == "watch":  # never over a kept connection, whose other end may be gone
                client = new_client(client.configuration, headers)
            answer = client.call_api(method, url, headers, request.body, _request_timeout=limits).response
        except _FAILURES as error:
            raise _lost(request, error) from error
        stream = Stream(request, answer, self._count)
        if not 200 <= answer.status < 300:
            body = b""
            with suppress(TooLargeError):  # it is no Status: the number alone says what it is
                body = stream.read(_LONGEST_REFUSAL, time.monotonic() + timeout)
            raise refusal(request, answer.status, body, answer.headers.get("Retry-After", ""))
        kind = answer.headers.get("Content-Type", "")
        if headers["Accept"] == _JSON and not kind.startswith(_JSON):
            stream.close()
            raise NotJsonError(
                f"{request}: the answer is {kind or 'of no content type'}, not JSON: {NO_API_SERVER}"
            )
        return stream

    def _exchange(self, request: ApiRequest, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        return self._open(request, timeout).read(LARGEST_ANSWER, deadline)

    def _streams(
        self, request: ApiRequest, query: Sequence[tuple[str, object]], timeout: float
    ) -> dict[int, bytearray]:
        """Return what is printed until the server closes or one has `_LARGEST_OUTPUT` bytes, by stream."""
        client, headers = self._access(request)
        if client.default_headers:
            raise ApiError(
                f"{request}: the kubeconfig's user impersonates another one (`as`); no program can be run in "
                "a pod with those rights: give a kubeconfig without it"
            )
        streams = {_STDOUT: bytearray(), _STDERR: bytearray(), _STATUS: bytearray()}
        url = get_websocket_url(client.configuration.host + request.path, query)
        opened, deadline = None, time.monotonic() + timeout
        try:
            opened = create_websocket(client.configuration, url, headers)
            opened.settimeout(timeout)
            size = 0
            while size <= _LARGEST_OUTPUT and time.monotonic() < deadline:
                kind, message = opened.recv_data()
                if kind == _CLOSE:
                    break
                stream = streams.get(message[0] if message else -1, bytearray())
                stream += message[1:]
                size = len(stream)
        except Exception as error:  # of the websocket's own kinds
            if status := getattr(error, "status_code", 0):
                wait = (getattr(error, "resp_headers", None) or {}).get("retry-after", "")
                raise refusal(request, status, getattr(error, "resp_body", None) or b"", str(wait)) from error
            # The status is last: with it, the answer is complete, however the connection ends.
            if not streams[_STATUS]:
                raise _lost(request, error) from error
        finally:
            if opened:
                opened.shutdown()  # No closing handshake: all has arrived, or is no longer wanted.
        return streams

    def _count(self, size: int) -> None:
        with self._lock:
            self.bytes_read += size


class Stream:
    """The body of an answer of which only the head was read; `count` gets the bytes read over the wire."""

    def __init__(self, request: ApiRequest, answer: HTTPResponse, count: Callable[[int], None]) -> None:
        self.request = request
        self._answer = answer
        self._count = count

    def pieces(self) -> Iterator[bytes]:
        """Yield what arrives, unpacked, as soon as it is there, and close. Raises UnreachableError."""
        counted = 0
        try:
            while piece := self._answer.read1(_READ_AT_ONCE, decode_content=True):
                before, counted = counted, self._answer.tell()
                self._count(counted - before)
                yield piece
        except _FAILURES as error:
            raise _lost(self.request, error) from error
        finally:
            self.close()

    def read(self, most: int, deadline: float) -> bytes:
        """Return all of it, at most `most` bytes. Raises TooLargeError or UnreachableError."""
        body = bytearray()
        with closing(self):
            for piece in self.pieces():
                body += piece
                if len(body) > most:
                    raise TooLargeError(f"{self.request}: the answer has more than {most} bytes; given up")
                if time.monotonic() > deadline:
                    raise UnreachableError(f"{self.request}: the answer took too long; given up")
        return bytes(body)

    def close(self) -> None:
        """Give up what is not read yet. Safe to call again."""
        self._answer.close()

    def interrupt(self) -> None:
        """Make another thread that reads see the end at once. Safe to call again."""
        with suppress(ValueError, RuntimeError, OSError):  # it has ended, or is closed at this moment
            self._answer.shutdown()


def _lost(request: ApiRequest, error: Exception) -> UnreachableError:
    kind = NoConnectionError if isinstance(error, ConnectTimeoutError | ProxyError) else UnreachableError
    proxy = isinstance(error, ProxyError)
    up = "proxy is up" if proxy else "server is up, and that its address and CA are right"
    return kind(f"{request}: {failure_words(error)}; check that the {up}")
