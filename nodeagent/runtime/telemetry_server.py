"""The agent's pages by HTTP, at the configured address.

The server has limits everywhere: of connections at once (the oldest gives way to a new one), of seconds
without a byte, and one request per connection. It writes no access log: a scrape every few seconds is not an
event. When idle, it costs nothing: its thread sleeps in the kernel.

Two agents of a node want the same address during an upgrade's overlap (host network). Decided:

- No SO_REUSEPORT. The kernel would distribute connections to both: the old agent would answer a probe of the
  new one, and counters would jump back and forth from scrape to scrape. The address belongs to one.
- The newer agent tries again every second, in a thread of its own, until the older one ends; the reconcile
  loop never waits for it. Scrapes reach the older agent until then, and the newer one from then on.
- So the address can't tell how the agent of a certain container is: its status file does (status_file.py).

For the same reason, an address that is taken does not stop the agent: serving the node is more important than
reporting. It is logged once, with what to do.
"""

import errno
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv6Address, ip_address
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

from msgspec import Struct

from nodeagent.errors import NodeagentError
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


# Both may be temporary: the older agent ends; one of the node's own addresses is added after the agent, at
# boot.
_PASSING = {errno.EADDRINUSE, errno.EADDRNOTAVAIL}


class TelemetryServer(ThreadingHTTPServer):
    """The agent's pages, served until `close`, from threads of its own.

    A request for a name that is not this machine's is rejected with 421 (RFC 9110, 15.5.20): so another
    site's page, whose name resolves to this address (DNS rebinding), can't make a browser read these pages.
    Names of this machine are `localhost`, those of `names`, and every address.

    Attributes:
        bound: The TCP address that is listened on now, with the port that the kernel chose; None: not (yet).

    Args:
        pages: what is served.
        endpoint: the TCP address (`TelemetryOptions.listen`); None: no TCP at all.
        names: this machine's own names, accepted in requests in addition to addresses.
        retry_seconds: between two attempts at an address that is taken.
    """

    daemon_threads = True

    def __init__(
        self, pages: Pages, endpoint: Endpoint | None, names: AbstractSet[str], retry_seconds: float = 1.0
    ) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()  # the base class makes one, bound to nothing
        self.pages = pages
        self.names = names
        self.bound: Endpoint | None = None
        self._endpoint = endpoint
        self._retry_seconds = retry_seconds
        self._lock = Lock()
        self._served: dict[object, socket.socket] = {}
        """The connections that are open, the oldest first."""
        self._closing = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start to serve, and return at once. An address that is taken is logged and tried again.

        Raises:
            NodeagentError: the address is never available (no permission); nothing is served then.
        """
        if self._endpoint is None:
            return
        problem = self._listen(self._endpoint)
        if problem is not None and problem.errno not in _PASSING:
            raise NodeagentError(
                f"{self._endpoint}: {os.strerror(problem.errno or 0)}: health and metrics can't be served "
                "there; set telemetry.listen to another address, or to '' for none"
            ) from problem
        if problem is not None:
            _log.warning(
                "Could not listen for health and metrics; they are served as soon as the address is free. If "
                "an older agent that is about to end does not hold it (see ss -ltnp), set telemetry.listen "
                "to another address",
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
        # With SO_REUSEADDR, so that connections that just ended don't prevent a restart, and without
        # SO_REUSEPORT: this module's docstring says why. `[::]` accepts IPv4, too.
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
        """Accept a connection."""
        try:
            return super().get_request()
        except OSError:
            # For example, out of descriptors: the connection stays in the queue and wakes this thread again
            # at once.
            if not self._closing.is_set():
                time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: "socket.socket | tuple[bytes, socket.socket]", client: object) -> None:
        """Give each connection a thread; if there is one too many, hang up the oldest.

        An honest request takes milliseconds. So a client that holds connections open only loses them, and a
        probe of the kubelet is answered.
        """
        if isinstance(request, tuple):
            raise TypeError("datagrams are not served")
        with self._lock:
            if len(self._served) >= _AT_ONCE:
                oldest = self._served.pop(next(iter(self._served)))
                with suppress(OSError):  # it has just ended
                    oldest.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
            self._served[id(request)] = request
        try:
            super().process_request(request, client)
        except BaseException:
            self._served.pop(id(request), None)
            raise

    def process_request_thread(
        self, request: "socket.socket | tuple[bytes, socket.socket]", client: object
    ) -> None:
        """Serve one connection, in its own thread."""
        try:
            super().process_request_thread(request, client)
        finally:
            self._served.pop(id(request), None)

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
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *_: object) -> None:
        """Log nothing: neither a probe nor a bad request."""

    def _answer(self, *, with_body: bool) -> None:
        pages = self.server.pages
        try:
            make = pages.get(urlsplit(self.path).path)
        except ValueError:  # "http://["
            make = None
        if not _is_own(self.headers.get_all("Host", []), self.server.names):
            # What the name was is not repeated.
            page = Page(421, _TEXT, b"ask by address, as localhost, or by this node's own name\n")
        elif make is None:
            page = Page(404, _TEXT, f"no such page; there are {', '.join(pages)}\n".encode())
        else:
            page = make()
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
    if len(hosts) > 1:
        return False
    try:
        host = urlsplit(f"//{hosts[0].strip()}").hostname or ""
        name = host.removesuffix(".")
        return name == "localhost" or name in names or bool(ip_address(host))
    except ValueError:
        return False
