"""A small HTTP server for the agent's pages, on one listening socket: TCP or unix.

It has limits everywhere: of connections at once, of seconds for a request however slowly its bytes arrive,
and one request per connection. It writes no access log: a probe every few seconds is not an event. When idle,
it costs nothing: its thread sleeps in the kernel, and does not poll.
"""

import io
import logging
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from nodeagent.agent.reporting.health import HealthBoard, ProbeAnswer
from nodeagent.agent.reporting.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_TEXT = "text/plain; charset=utf-8"


class Page(Struct, frozen=True):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes


Pages = Mapping[str, Callable[[], Page]]
"""Path to the function that makes the page; a thread of the server calls it for each request."""


def pages(board: HealthBoard, metrics: Metrics) -> Pages:
    """Return the three pages; probes get 200 for yes and 503 for no."""
    return {
        "/healthz": lambda: probe_page(board.alive()),
        "/readyz": lambda: probe_page(board.ready()),
        "/metrics": lambda: metrics_page(metrics.exposition()),
    }


def metrics_page(exposition: bytes) -> Page:
    """Return a scrape's answer as a page."""
    return Page(200, CONTENT_TYPE, exposition)


def misdirected() -> Page:
    """Return that the requested name is not this machine's; the answer repeats nothing of the request."""
    return Page(421, _TEXT, b"ask by address, as localhost, or by this node's own name\n")


def not_found(known: Pages) -> Page:
    """Return the list of pages."""
    return Page(404, _TEXT, f"no such page; there are {', '.join(known)}\n".encode())


def probe_page(answer: ProbeAnswer) -> Page:
    """Return a probe's answer as a page: 200 for yes, 503 for no."""
    return Page(200 if answer.ok else 503, _TEXT, answer.text.encode("utf-8", "backslashreplace"))


_log = logging.getLogger(__name__)

_AT_ONCE = 8
_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.5


class PageServer:
    """Serves `pages` on `listening`, which it owns from now on, until `close`; from threads of its own.

    A request for a name that is not this machine's is rejected with 421 (RFC 9110, 15.5.20): so another
    site's page, whose name resolves to this address (DNS rebinding), can't make a browser read these pages.
    Names of this machine are `localhost`, those of `names`, and every address; at a unix socket, which no
    browser reaches, any name (None).
    """

    def __init__(self, listening: socket.socket, pages: Pages, names: AbstractSet[str] | None = None) -> None:
        self._server = _Server(listening, pages, names)
        self._thread = Thread(target=self._server.serve_until_closed, name="telemetry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; answers in progress may still end. Idempotent."""
        self._server.stop()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, pages: Pages, names: AbstractSet[str] | None) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()  # the base class makes one, bound to nothing
        self.socket = listening
        self.pages = pages
        self.names = names
        self._slots = BoundedSemaphore(_AT_ONCE)
        self._stopping = False

    def serve_until_closed(self) -> None:
        """Serve until `stop`. Not serve_forever: that wakes up twice a second to check whether it may end."""
        with self.socket:
            while not self._stopping:
                self.handle_request()

    def stop(self) -> None:
        """Make serve_until_closed return; may be called from any thread, and twice."""
        self._stopping = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that sleeps on it
        except OSError:
            return  # closed already, by the thread's end

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError:
            # For example, out of descriptors: the connection stays in the queue and wakes this thread again
            # at once.
            if not self._stopping:
                time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: "socket.socket | tuple[bytes, socket.socket]", client: object) -> None:
        """Give each connection a thread; close one too many."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(
        self, request: "socket.socket | tuple[bytes, socket.socket]", client: object
    ) -> None:
        """Serve one connection, in its own thread."""
        try:
            super().process_request_thread(request, client)
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base's
        """Log what failed on a connection in one record; a client that disconnected is not an error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("Could not make a page")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "nodeagent"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(_REQUEST_SECONDS)
        self.rfile.close()
        self.rfile = io.BufferedReader(_Hasty(self.connection, time.monotonic() + _REQUEST_SECONDS))

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *_: object) -> None:
        """Log nothing: neither a probe nor a bad request."""

    def _answer(self, *, with_body: bool) -> None:
        make = self.server.pages.get(urlsplit(self.path).path)
        names = self.server.names
        if names is not None and not _is_own(self.headers.get_all("Host", []), names):
            page = misdirected()
        else:
            page = make() if make else not_found(self.server.pages)
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(page.body)


def _is_own(hosts: Sequence[str], names: AbstractSet[str]) -> bool:
    """Whether the Host header (RFC 9110, 7.2) names this machine; HTTP/1.0 has none. Pure."""
    if not hosts:
        return True
    try:
        host = urlsplit(f"//{hosts[0].strip()}").hostname or ""
    except ValueError:
        return False
    if len(hosts) > 1:
        return False
    name = host.removesuffix(".")
    return name == "localhost" or name in names or _is_address(host)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class _Hasty(io.RawIOBase):
    """Reads from a socket until a deadline (monotonic seconds) for all of it, not for each read."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("no request in time")
        self._connection.settimeout(remaining)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_REQUEST_SECONDS)
