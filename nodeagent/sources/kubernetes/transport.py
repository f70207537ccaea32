"""What a connection to the API server needs of a transport, and the lines of a streamed answer.

There are two transports: `official`, for kubeconfigs, and `in_cluster`, for the ServiceAccount of a pod.
"""

import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.client import IncompleteRead
from typing import Any, Final, Protocol, Self

from nodeagent.sources.kubernetes.errors import ApiError, ApiRequest, TooLargeError, UnreachableError

KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9),
)
"""Socket options as in client-go: probes after 30 s without data, every 15 s, given up after 9."""

LONGEST_LINE = 4 * 1024 * 1024
"""Bytes of a line. An event holds one object, of which etcd takes 1.5 MiB (its `--max-request-bytes`)."""

_READ_AT_MOST = 65536
"""Bytes of a stream read at once; fewer are returned as soon as they are there."""


class Response(Protocol):
    """An answer whose head was read. Any failure while its body is read raises UnreachableError.

    Attributes:
        status: the HTTP status.
        wire_bytes: bytes of the body read so far, as they came over the wire.
    """

    status: int
    wire_bytes: int

    def header(self, name: str) -> str:
        """Return a header's value; empty if there is none."""

    def pieces(self, most: int) -> Iterator[bytes]:
        """Yield the body, unpacked, in pieces of about `most` bytes; at its end the connection is kept."""

    def read1(self, most: int) -> bytes:
        """Return what has arrived of a body that is not compressed; wait for a byte; empty at the end."""

    def close(self) -> None:
        """Give up the connection if the body was not read to its end. Safe to call again."""

    def interrupt(self) -> None:
        """Make another thread that reads see the end at once. Safe to call again."""


class Transport(Protocol):
    """HTTP to one API server, with its credentials; every method may be called from any thread.

    Attributes:
        server: host (a name or an address) and port.
        proxy: host and port of the proxy in front of it; empty if there is none.
    """

    @property
    def server(self) -> tuple[str, int]:
        """Host and port of the API server."""

    @property
    def proxy(self) -> str:
        """Host and port of the proxy; empty if there is none."""

    def send(  # noqa: PLR0913, PLR0917 - a request's parts
        self,
        request: ApiRequest,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None,
        limits: tuple[float, float],
    ) -> Response:
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
            UnreachableError: no connection, or no answer.
        """

    def open_websocket(
        self, request: ApiRequest, target: str, protocols: Iterable[str], timeout: float
    ) -> Any:  # noqa: ANN401 - a websocket.WebSocket
        """Open a websocket; see `Connection.open_websocket`."""

    def close(self) -> None:
        """Close idle connections."""


def unreachable(request: ApiRequest, error: Exception) -> UnreachableError:
    """Return the error for a failure of the network. Pure."""
    return UnreachableError(
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
    return " ".join(str(getattr(error, "reason", None) or error).split())


class LineSplitter:
    """Splits bytes in pieces of any size into whole lines. Pure.

    The rest after the last line end is kept for the next piece; at the stream's end it is dropped, since half
    an event means nothing.
    """

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that this piece completes, without their line ends; empty lines are left out.

        Raises TooLargeError for a line longer than `LONGEST_LINE`: the stream must be given up.
        """
        first, *others = piece.split(b"\n")
        self._unfinished.append(first)
        self._size += len(first)
        if self._size > LONGEST_LINE:
            raise TooLargeError(f"a line has more than {LONGEST_LINE} bytes: given up; a new list is needed")
        if not others:
            return []
        lines = [b"".join(self._unfinished), *others[:-1]]
        self._unfinished = [others[-1]]
        self._size = len(others[-1])
        return [line for line in lines if line]


class LineStream(Iterator[bytes]):
    """The lines of one answer. Iteration ends when the server ends the answer; a broken one raises ApiError.

    Args:
        response: the answer, before any of its body was read.
        count: called with the bytes read over the wire.
    """

    def __init__(self, response: Response, count: Callable[[int], None]) -> None:
        self._response = response
        self._count = count
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        while not self._lines:
            try:
                piece = self._response.read1(_READ_AT_MOST)
                if not piece:
                    raise StopIteration
                self._count(len(piece))
                self._lines.extend(self._splitter.feed(piece))
            except ApiError:
                self._response.close()
                raise
        return self._lines.popleft()

    def close(self) -> None:
        """Give up the connection; for the thread that reads. Safe to call again."""
        self._response.close()

    def interrupt(self) -> None:
        """Make the reading thread see the end at once; for any other thread. Safe to call again."""
        self._response.interrupt()
