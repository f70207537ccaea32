"""The agent's pages by HTTP, at the configured address.

At most eight connections are open: the oldest gives way to a new one, and each has one request.
So idle clients only lose their connections, and a probe of the kubelet is answered. There is no access log:
a scrape every few seconds is not an event. When idle, the server's thread sleeps in the kernel.

Two agents of a node want the same address during an upgrade's overlap (host network). It belongs to one:
without SO_REUSEPORT, with which the old agent would answer probes of the new one, and counters would jump
from scrape to scrape. The newer agent tries again every second, in a thread of its own, until the older one
ends. So the address can't tell how the agent of a certain container is; its status file can.

For the same reason, an address that is not available does not stop the agent: serving the node is more
important than reporting. It is logged once, with what to do.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv6Address
from threading import Event, Thread
from urllib.parse import urlsplit

from msgspec import Struct

from nodeagent.model.addresses import Endpoint
from nodeagent.runtime.status import ProbeAnswer, Status

_log = logging.getLogger(__name__)

_AT_ONCE = 8
_BACKLOG = 64
_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.5

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
"""The format that every Prometheus reads, and that prometheus_client's generate_latest makes."""


class Page(Struct, frozen=True):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes


Pages = Mapping[str, Callable[[], Page]]
"""Path to the function that makes the page; a thread of the server calls it for each request."""


def pages(status: Status, exposition: Callable[[], bytes]) -> Pages:
    """Return the three pages; probes get 200 for yes and 503 for no, a scrape all metrics as text."""

    def probe(answer: ProbeAnswer) -> Page:
        return Page(200 if answer.ok else 503, _TEXT, answer.text.encode("utf-8", "backslashreplace"))

    return {
        "/healthz": lambda: probe(status.alive()),
        "/readyz": lambda: probe(status.ready()),
        "/metrics": lambda: Page(200, _METRICS, exposition()),
    }


class TelemetryServer(ThreadingHTTPServer):
    """The agent's pages, served until `close`, from threads of its own.

    Attributes:
        bound: The TCP address that is listened on now, with the port that the kernel chose; None: not (yet).

    Args:
        pages: what is served.
        endpoint: the TCP address (`TelemetryOptions.listen`); None: no TCP at all.
        retry_seconds: between two attempts at an address that is not available.
    """

    daemon_threads = True

    def __init__(self, pages: Pages, endpoint: Endpoint | None, retry_seconds: float = 1.0) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()  # the base class makes one, bound to nothing
        self.pages = pages
        self.bound: Endpoint | None = None
        self._endpoint = endpoint
        self._retry_seconds = retry_seconds
        self._open: list[socket.socket] = []
        self._closing = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start to serve, and return at once. An address that is not available is logged and tried again."""
        if self._endpoint is None:
            return
        problem = self._listen(self._endpoint)
        if problem is not None:
            _log.warning(
                "Could not listen for health and metrics; they are served as soon as the address is free. If "
                "an older agent that is about to end does not hold it (see ss -ltnp), set telemetry.listen "
                "to another address, or to '' for none",
                extra={"fields": {"address": str(self._endpoint), "err": os.strerror(problem.errno or 0)}},
            )
        self._thread = Thread(target=self._serve, args=(self._endpoint,), name="telemetry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to listen; answers in progress may still end. Idempotent."""
        self._closing.set()
        self.bound = None
        with suppress(OSError):  # closed already, or not open yet
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that sleeps on it
        if self._thread is not None:
            self._thread.join()

    def _listen(self, endpoint: Endpoint) -> OSError | None:
        """Listen at the endpoint, or report why that is not possible now."""
        # With SO_REUSEADDR, so that connections that just ended don't prevent a restart. `[::]` accepts IPv4,
        # too.
        family = socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET
        both = endpoint.address == IPv6Address("::") and socket.has_dualstack_ipv6()
        address = str(endpoint.address), endpoint.port
        try:
            self.socket = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        except OSError as error:
            return error
        self.bound = Endpoint(endpoint.address, self.socket.getsockname()[1])
        return None

    def _serve(self, endpoint: Endpoint) -> None:
        """Serve until `close`; not `serve_forever`, which wakes up twice a second to see if it may end."""
        while self.socket.fileno() < 0:  # closed: none was possible yet
            if self._closing.wait(self._retry_seconds):
                return
            if self._listen(endpoint) is None:
                _log.info("Began to serve health and metrics", extra={"fields": {"address": str(endpoint)}})
        with self.socket:
            while not self._closing.is_set():
                self.handle_request()
        self.bound = None

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection, and hang up the oldest if there is one too many."""
        try:
            request, client = super().get_request()
        except OSError:
            # For example, out of descriptors: the connection stays in the queue and wakes this thread again
            # at once.
            if not self._closing.is_set():
                time.sleep(_PAUSE_SECONDS)
            raise
        self._open = [*(each for each in self._open if each.fileno() >= 0), request]
        if len(self._open) > _AT_ONCE:
            with suppress(OSError):  # it has just ended
                self._open.pop(0).shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
        return request, client

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base's
        """Log what failed on a connection in one record; a client that disconnected is not an error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("Could not make a page")


class _Handler(BaseHTTPRequestHandler):
    server: TelemetryServer
    timeout = _REQUEST_SECONDS
    server_version = "nodeagent"
    sys_version = ""

    def do_GET(self) -> None:
        pages = self.server.pages
        try:
            make = pages.get(urlsplit(self.path).path)
        except ValueError:  # "http://["
            make = None
        if make is None:
            page = Page(404, _TEXT, f"no such page; there are {', '.join(pages)}\n".encode())
        else:
            page = make()
        self.send_response(page.status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, *_: object) -> None:
        """Log nothing: neither a probe nor a bad request."""
