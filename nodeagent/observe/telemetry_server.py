"""The agent's pages by HTTP, at the configured address.

At most eight connections are open, each for one request: the oldest gives way to a new one, so that idle
clients keep no probe of the kubelet out. While the address is not available, the agent serves the node and
tries again.
"""

import logging
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv6Address
from threading import Event, Lock, Thread

from nodeagent.model.addresses import Endpoint
from nodeagent.observe.status import Page, Status
from nodeagent.observe.transition_log import TransitionLog

_log = logging.getLogger(__name__)

_AT_ONCE = 8
_BACKLOG = 64
_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.5
_PACE_SECONDS = 0.01
"""Between two requests: a client that asks in a loop must not take a core from the node."""
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of all pages: the version is that of the metrics' format, which every Prometheus reads."""
_NOT_NOW = (
    "Could not listen for health and metrics; they are served as soon as the address is free. See "
    "what holds it (ss -ltnp); outside a cluster, telemetry.listen sets another address, or '' for none"
)

Pages = Mapping[str, Callable[[], Page]]
"""By path, what makes the page; a thread of the server calls it for each request."""


def pages(status: Status, exposition: Callable[[], bytes]) -> Pages:
    """Return the three pages; that of the metrics costs milliseconds, and is made at most once a second."""
    made_at, page, making = -math.inf, Page(ok=True, text=""), Lock()

    def metrics() -> Page:
        nonlocal made_at, page
        with making:
            if time.monotonic() - made_at >= 1:
                page, made_at = Page(ok=True, text=exposition().decode()), time.monotonic()
            return page

    return {"/healthz": status.alive, "/readyz": status.ready, "/metrics": metrics}


class TelemetryServer(ThreadingHTTPServer):
    """The pages, served at `endpoint` (None: nowhere) until `close`; `bound` is where now (None: not yet)."""

    daemon_threads = True

    def __init__(self, pages: Pages, endpoint: Endpoint | None, retry_seconds: float = 1.0) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()  # the base class makes one, bound to nothing
        self.pages = pages
        self.bound: Endpoint | None = None
        self._endpoint = endpoint
        self._retry_seconds = retry_seconds
        self._open: list[socket.socket] = []
        self._log = TransitionLog()
        self._closing = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start to serve."""
        if self._endpoint is None:
            return
        self._listen(self._endpoint)
        self._thread = Thread(target=self._serve, args=(self._endpoint,), name="telemetry", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to listen; answers in progress may still end. Idempotent."""
        self._closing.set()
        with suppress(OSError):  # closed already, or not open yet
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that sleeps on it
        if self._thread is not None:
            self._thread.join()

    def _listen(self, endpoint: Endpoint) -> None:
        """Listen at the endpoint if that is possible now; `[::]` accepts IPv4, too."""
        family = socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET
        both = endpoint.address == IPv6Address("::") and socket.has_dualstack_ipv6()
        address = str(endpoint.address), endpoint.port
        problem = {}
        try:
            # Without SO_REUSEPORT, by which another agent would answer probes of this one.
            self.socket = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
            self.bound = Endpoint(endpoint.address, self.socket.getsockname()[1])
        except OSError as error:
            problem = {str(endpoint): os.strerror(error.errno or 0)}
        self._log.problems(_NOT_NOW, problem, "address", ended="Began to serve health and metrics")

    def _serve(self, endpoint: Endpoint) -> None:
        """Serve until `close`; not `serve_forever`, which wakes up twice a second to see if it may end."""
        while self.bound is None:
            if self._closing.wait(self._retry_seconds):
                return
            self._listen(endpoint)
        with self.socket:
            while not self._closing.is_set():
                self.handle_request()
        self.bound = None

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection; if there is one too many, hang up the oldest."""
        try:
            self._closing.wait(_PACE_SECONDS)
            request, client = super().get_request()
        except OSError:
            # For example, out of descriptors: the connection waits, and would wake this thread at once.
            self._closing.wait(_PAUSE_SECONDS)
            raise
        self._open = [*(connection for connection in self._open if connection.fileno() >= 0), request]
        if len(self._open) > _AT_ONCE:
            with suppress(OSError):  # it has just ended
                self._open.pop(0).shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
        return request, client

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - the base's
        """Log what failed; a client that disconnected is not an error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("Could not make a page")


class _Handler(BaseHTTPRequestHandler):
    server: TelemetryServer
    timeout = _REQUEST_SECONDS
    server_version = "nodeagent"
    sys_version = ""

    def do_GET(self) -> None:
        status, text = 404, f"no such page; there are {', '.join(self.server.pages)}\n"
        if make := self.server.pages.get(self.path.partition("?")[0]):
            page = make()
            status, text = 200 if page.ok else 503, page.text
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: neither a probe nor a bad request."""
