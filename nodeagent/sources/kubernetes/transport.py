"""HTTP to one API server, by the standard library: connections, requests and the bodies of answers.

Where the server is, and who asks, is up to the credentials: those of a ServiceAccount or of a
kubeconfig (`credentials`). The official client's own transport is not used: it costs 25 MB.
"""

import json
import select
import socket
import ssl
import threading
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import Any, Protocol
from urllib.parse import unquote

from msgspec import Struct

from nodeagent.sources.kubernetes.errors import (
    ApiRequest,
    NoConnectionError,
    UnauthorizedError,
    UnreachableError,
)

_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
"""Socket options as in client-go: probes after 30 s without data, every 15 s, given up after 9."""
_MOST_IDLE = 4
"""Connections that are kept for the next request."""
_GZIP = 16 + zlib.MAX_WBITS

Headers = Sequence[tuple[str, str]]


class Proxy(Struct, frozen=True):
    """A proxy in front of the API server; `authorization` is `user:password` as in its URL."""

    host: str
    port: int
    tls: bool = False
    authorization: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def headers(self) -> dict[str, str]:
        """Return the headers for the proxy alone."""
        if not self.authorization:
            return {}
        return {"Proxy-Authorization": f"Basic {b64encode(unquote(self.authorization).encode()).decode()}"}


class ApiTarget(Struct, frozen=True):
    """Where the API server is.

    Attributes:
        host: a name or an address.
        port: its port.
        path: in front of each path, without a slash at its end; empty for most servers.
        tls: whether it is HTTPS.
        name: whose certificate it must have.
        proxy: the proxy in front of it.
    """

    host: str
    port: int
    path: str = ""
    tls: bool = True
    name: str = ""
    proxy: Proxy | None = None


class Credentials(Protocol):
    """Who asks which server; every method may be called from any thread."""

    @property
    def target(self) -> ApiTarget:
        """Where the API server is."""

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings for a new connection."""

    def headers(self) -> Headers:
        """Return the headers that say who asks; raises OSError or ValueError if that can't be read."""


class Transport:
    """HTTP to one API server; every method may be called from any thread.

    Args:
        credentials: where it is, and who asks.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.target = credentials.target
        self._credentials = credentials
        self._lock = threading.Lock()
        self._idle: list[HTTPConnection] = []

    def send(  # noqa: PLR0913, PLR0917 - a request's parts
        self,
        request: ApiRequest,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        limits: tuple[float, float],
    ) -> "Response":
        """Send a request, and read the head of its answer.

        Args:
            request: the request, for errors.
            method: the HTTP method.
            target: path and query.
            headers: in addition to the credentials'.
            body: sent as JSON; None for none.
            limits: seconds until the connection exists, and seconds without a byte.

        Raises:
            UnauthorizedError: the credentials can't be read.
            NoConnectionError: no connection.
            UnreachableError: no answer.
        """
        sent = [*headers.items(), *self.authorization(request)]
        data = None if body is None else json.dumps(body).encode("ascii")
        what = (method, target, sent, data)
        kept = self._idle_connection()
        if kept is not None and method == "GET":
            # Whatever became of it since, a new one may work. A write could have been done already.
            try:
                return self._answer(request, kept, what, limits[1])
            except UnreachableError as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise  # No time is left.
                kept = None
        return self._answer(request, kept or self.connect(request, limits[0]), what, limits[1])

    def authorization(self, request: ApiRequest) -> Headers:
        """Return the credentials' headers; raises UnauthorizedError if they can't be read."""
        try:
            return self._credentials.headers()
        except (OSError, ValueError) as error:
            raise UnauthorizedError(f"{request}: the credentials can't be read: {error}") from error

    def connect(self, request: ApiRequest, timeout: float) -> HTTPConnection:
        """Open a connection, through the proxy if there is one; raises NoConnectionError."""
        where = self.target
        near = where.proxy or where
        with network(request, NoConnectionError):
            connection = HTTPConnection(where.host, where.port)
            connected = socket.create_connection((near.host, near.port), timeout)
            try:
                for level, name, value in _KEEPALIVE:
                    connected.setsockopt(level, name, value)
                if where.proxy is not None and where.proxy.tls:
                    context = ssl.create_default_context()
                    connected = context.wrap_socket(connected, server_hostname=where.proxy.host)
                if where.proxy is not None and where.tls:
                    _tunnel(connected, where, where.proxy)
                if where.tls:
                    connected = _secured(connected, self._credentials.context(), where.name or where.host)
            except BaseException:
                connected.close()
                raise
            connection.sock = connected
        return connection

    def close(self) -> None:
        """Close idle connections; those in use end with their answers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def keep(self, connection: HTTPConnection) -> None:
        """Keep a connection, whose answer was read to its end, for the next request."""
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _answer(
        self,
        request: ApiRequest,
        connection: HTTPConnection,
        sent: tuple[str, str, Headers, bytes | None],
        limit: float,
    ) -> "Response":
        method, target, headers, data = sent
        used: socket.socket = connection.sock
        where = self.target
        path = where.path + target
        with network(request):
            try:
                used.settimeout(limit)
                if where.proxy is not None and not where.tls:
                    path = f"http://{where.host}:{where.port}{path}"
                    headers = [*headers, *where.proxy.headers().items()]
                connection.putrequest(method, path, skip_accept_encoding=True)
                for name, value in headers:
                    connection.putheader(name, value)
                if data is not None:
                    connection.putheader("Content-Length", str(len(data)))
                connection.endheaders(data)
                answer = connection.getresponse()
            except BaseException:
                connection.close()
                raise
        return Response(request, self, connection, used, answer)

    def _idle_connection(self) -> HTTPConnection | None:
        """Return an idle connection that the server has not closed meanwhile."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            # No data is expected on it: if there is something to read, it is the end.
            poll = select.poll()
            poll.register(connection.sock, select.POLLIN)
            if not poll.poll(0):
                return connection
            connection.close()


class Response:
    """An answer whose head was read. Any failure while its body is read raises UnreachableError.

    Attributes:
        status: the HTTP status.
        wire_bytes: bytes of the body read so far, as they came over the wire.
    """

    def __init__(
        self,
        request: ApiRequest,
        transport: Transport,
        connection: HTTPConnection,
        used: socket.socket,
        answer: HTTPResponse,
    ) -> None:
        self.status = answer.status
        self.wire_bytes = 0
        self._request = request
        self._transport = transport
        self._connection: HTTPConnection | None = connection
        self._socket = used
        self._answer = answer

    def header(self, name: str) -> str:
        """Return a header's value; empty if there is none."""
        return self._answer.getheader(name) or ""

    def pieces(self, most: int) -> Iterator[bytes]:
        """Yield the body, unpacked, in pieces of at most `most` bytes; at its end the connection is kept."""
        packed = self.header("Content-Encoding") == "gzip"
        unpacker = zlib.decompressobj(_GZIP) if packed else None
        while piece := self.read1(most):
            if unpacker is None:
                yield piece
                continue
            # Never more than `most` at once, however far a small piece unpacks.
            while piece:
                with network(self._request):
                    unpacked = unpacker.decompress(piece, most)
                piece = unpacker.unconsumed_tail
                yield unpacked  # also if it is empty, so that deadlines are looked at
                if unpacker.unused_data:
                    raise unreachable(self._request, IncompleteRead(b""))
        if unpacker is not None and not unpacker.eof:
            raise unreachable(self._request, IncompleteRead(b""))

    def read1(self, most: int) -> bytes:
        """Return what has arrived of a body that is not compressed; wait for a byte; empty at the end."""
        with network(self._request):
            piece = self._answer.read1(most)
            if not piece and self._answer.length:
                # To http.client, a connection that ends too soon is the end of the body.
                raise IncompleteRead(b"", self._answer.length)
        self.wire_bytes += len(piece)
        if not piece and self._connection is not None:
            connection, self._connection = self._connection, None
            self._answer.close()
            if connection.sock is None:  # the server closes it, or said that it will
                connection.close()
            else:
                self._transport.keep(connection)
        return piece

    def close(self) -> None:
        """Give up the connection if the body was not read to its end. Safe to call again."""
        if self._connection is not None:
            self._answer.close()
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """Make another thread that reads see the end at once. Safe to call again."""
        # It may have ended, or its own thread may have closed it, at this moment: that is fine.
        # Not the TLS socket's own shutdown: that removes its state from under the other thread.
        inner: socket.socket = getattr(self._socket, "socket", self._socket)
        with suppress(ValueError, OSError):
            socket.socket.shutdown(inner, socket.SHUT_RDWR)


def _tunnel(connected: socket.socket, where: ApiTarget, proxy: Proxy) -> None:
    """Ask a proxy for a tunnel to the API server; raises OSError if it refuses."""
    name = f"[{where.host}]:{where.port}" if ":" in where.host else f"{where.host}:{where.port}"
    lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}"]
    lines += [f"{header}: {value}" for header, value in proxy.headers().items()]
    connected.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    answer = HTTPResponse(connected, method="CONNECT")
    answer.begin()
    if answer.status != 200:
        raise OSError(f"the proxy answers {answer.status} {answer.reason}")


def _secured(connected: socket.socket, context: ssl.SSLContext, name: str) -> Any:  # noqa: ANN401 - like a socket
    if isinstance(connected, ssl.SSLSocket):
        # ssl can't put TLS into TLS.
        from urllib3.util.ssltransport import SSLTransport  # noqa: PLC0415 - few have such a proxy

        return SSLTransport(connected, context, server_hostname=name)
    return context.wrap_socket(connected, server_hostname=name)


def client_context() -> ssl.SSLContext:
    """Return TLS settings that trust no CA yet.

    Not `create_default_context`: since Python 3.13 it rejects CAs without an authority key identifier, which
    clusters have and client-go accepts.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@contextmanager
def network(request: ApiRequest, kind: type[UnreachableError] = UnreachableError) -> Iterator[None]:
    """Turn failures of the network within into UnreachableError."""
    try:
        yield
    except (OSError, HTTPException, UnicodeError, zlib.error) as error:
        # UnicodeError: a host's name that IDNA can't encode.
        raise unreachable(request, error, kind) from error


def unreachable(
    request: ApiRequest, error: Exception, kind: type[UnreachableError] = UnreachableError
) -> UnreachableError:
    """Return the error for a failure of the network. Pure."""
    return kind(
        f"{request}: {failure_words(error)}; check that the server is up, and that its address and CA are "
        "right"
    )


def failure_words(error: Exception) -> str:
    """Return a failure of the network in the fewest words that still identify it. Pure."""
    if isinstance(error, IncompleteRead):
        return "the connection was lost in the middle of the answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join(str(error).split())
