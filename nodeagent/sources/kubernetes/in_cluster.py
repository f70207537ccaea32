"""The transport of a pod: the standard library's HTTP and TLS, with the pod's ServiceAccount.

The official client would read the same three files, but needs 25 MB of memory on every node. "Accessing the
Kubernetes API from a Pod" (Kubernetes documentation) says where they are. Proxies of the environment are
ignored: the API server of the pod's own cluster needs none.
"""

import json
import select
import socket
import ssl
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import Any, Self

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.errors import ApiRequest, UnauthorizedError
from nodeagent.sources.kubernetes.official import OfficialTransport
from nodeagent.sources.kubernetes.transport import KEEPALIVE, unreachable

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet keeps the token, the CA and the namespace of a pod's ServiceAccount."""
_MOST_IDLE = 4
"""Connections that are kept for the next request."""
_GZIP = 16 + zlib.MAX_WBITS


class PodTransport:
    """HTTPS to the API server of the cluster that this pod runs in.

    Token and CA are files that are replaced now and then (a token lives for an hour): the token is read for
    each request, the CA for a new connection if its file was replaced.

    Args:
        server: host (an address or a name) and port.
        account: the directory with `token` and `ca.crt`.

    Raises:
        SourceError: one of the files can't be used; the text names it.
    """

    def __init__(self, server: tuple[str, int], account: Path = ACCOUNT) -> None:
        self._server = server
        self._token_file = account / "token"
        self._ca_file = account / "ca.crt"
        self._lock = threading.Lock()
        self._idle: list[HTTPSConnection] = []
        try:
            self._token()
            self._ca = self._ca_stamp()
            self._context = self._new_context()
        except (OSError, ValueError) as error:
            raise _no_way(error) from error

    @classmethod
    def of(cls, environment: Mapping[str, str], account: Path = ACCOUNT) -> Self:
        """Return the transport for a pod's environment variables. Raises SourceError."""
        port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
        if not (port.isascii() and port.isdecimal()):
            raise _no_way(ValueError(f"KUBERNETES_SERVICE_PORT={port!r} is not a port"))
        return cls((environment["KUBERNETES_SERVICE_HOST"], int(port)), account)

    @property
    def server(self) -> tuple[str, int]:
        """Host and port of the API server."""
        return self._server

    @property
    def proxy(self) -> str:
        """Return nothing: there is no proxy."""
        return ""

    def send(  # noqa: PLR0913, PLR0917 - a request's parts
        self,
        request: ApiRequest,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        limits: tuple[float, float],
    ) -> "PodResponse":
        """Send a request, and read the head of its answer; see `Transport.send`."""
        try:
            token = self._token()
        except (OSError, ValueError) as error:
            raise UnauthorizedError(f"{request}: the credentials can't be read: {error}") from error
        sent = {**headers, "Authorization": f"Bearer {token}"}
        data = None if body is None else json.dumps(body).encode("ascii")
        with _network(request):
            connection = self._idle_connection() or self._connected(limits[0])
            used: socket.socket = connection.sock
            try:
                used.settimeout(limits[1])
                connection.request(method, target, data, sent)
                answer = connection.getresponse()
            except BaseException:
                connection.close()
                raise
        return PodResponse(request, self, connection, used, answer)

    def open_websocket(
        self, request: ApiRequest, target: str, protocols: Iterable[str], timeout: float
    ) -> Any:  # noqa: ANN401 - a websocket.WebSocket
        """Open a websocket with the official client: no daemon needs one."""
        return OfficialTransport(None).open_websocket(request, target, protocols, timeout)

    def close(self) -> None:
        """Close idle connections; those in use end with their answers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def keep(self, connection: HTTPSConnection) -> None:
        """Keep a connection, whose answer was read to its end, for the next request."""
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _idle_connection(self) -> HTTPSConnection | None:
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

    def _connected(self, timeout: float) -> HTTPSConnection:
        connection = HTTPSConnection(*self._server, timeout=timeout, context=self._current_context())
        connection.connect()
        for level, name, value in KEEPALIVE:
            connection.sock.setsockopt(level, name, value)
        return connection

    def _current_context(self) -> ssl.SSLContext:
        with self._lock:
            # During a replacement, the CA that was valid so far stays in use.
            with suppress(OSError, ValueError):
                if (stamp := self._ca_stamp()) != self._ca:
                    self._context, self._ca = self._new_context(), stamp
            return self._context

    def _new_context(self) -> ssl.SSLContext:
        # Not `create_default_context`: since Python 3.13 it rejects CAs without an authority key identifier,
        # which clusters have and client-go accepts.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(cafile=str(self._ca_file))
        return context

    def _ca_stamp(self) -> tuple[int, int, int]:
        found = self._ca_file.stat()
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _token(self) -> str:
        token = self._token_file.read_text(encoding="ascii").strip()
        if not token:
            raise ValueError(f"{self._token_file} is empty")
        return token


class PodResponse:
    """An answer; see `Response`."""

    def __init__(
        self,
        request: ApiRequest,
        transport: PodTransport,
        connection: HTTPSConnection,
        used: socket.socket,
        answer: HTTPResponse,
    ) -> None:
        self.status = answer.status
        self.wire_bytes = 0
        self._request = request
        self._transport = transport
        self._connection: HTTPSConnection | None = connection
        self._socket = used
        self._answer = answer

    def header(self, name: str) -> str:
        """Return a header's value; empty if there is none."""
        return self._answer.getheader(name) or ""

    def pieces(self, most: int) -> Iterator[bytes]:
        """Yield the body, unpacked, in pieces of at most `most` bytes."""
        packed = self.header("Content-Encoding") == "gzip"
        unpacker = zlib.decompressobj(_GZIP) if packed else None
        while piece := self.read1(most):
            if unpacker is None:
                yield piece
                continue
            # Never more than `most` at once, however far a small piece unpacks.
            while piece:
                with _network(self._request):
                    unpacked = unpacker.decompress(piece, most)
                piece = unpacker.unconsumed_tail
                if unpacked:
                    yield unpacked
        if unpacker is not None and not unpacker.eof:
            raise unreachable(self._request, IncompleteRead(b""))

    def read1(self, most: int) -> bytes:
        """Return what has arrived; empty at the end."""
        with _network(self._request):
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
        """Give up the connection if the body was not read to its end."""
        if self._connection is not None:
            self._answer.close()
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """Make another thread that reads see the end at once."""
        # It may have ended, or its own thread may have closed it, at this moment: that is fine.
        # Not the TLS socket's own shutdown: that removes its state from under the other thread.
        with suppress(ValueError, OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@contextmanager
def _network(request: ApiRequest) -> Iterator[None]:
    """Turn failures of the network within into UnreachableError."""
    try:
        yield
    except (OSError, HTTPException, zlib.error) as error:
        raise unreachable(request, error) from error


def _no_way(error: Exception) -> SourceError:
    return SourceError(
        f"the pod's ServiceAccount: can't be used to reach the API server: {error}; nothing was changed. "
        "Mount "
        "it (automountServiceAccountToken), or give a --kubeconfig"
    )
