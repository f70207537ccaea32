"""Shows the agent's pages at the configured address and at a unix socket in the run directory.

Two agents of a node want the same address during an upgrade's overlap (host network). Decided:

- No SO_REUSEPORT. The kernel would distribute connections to both: the old agent would answer a probe of the
  new one, and counters would jump back and forth from scrape to scrape. The address belongs to one.
- The newer agent tries again every second, in a thread of its own, until the older one ends; the reconcile
  loop never waits for it. Scrapes reach the older agent until then, and the newer one from then on.
- A request in a container means that container's agent. So the same pages are served on a unix socket, named
  for this process and its PID namespace (socket_path.py); probe.py asks there.

For the same reason, an address that is taken does not stop the agent: serving the node is more important than
reporting. It is logged once, with what to do.
"""

import errno
import logging
import os
import socket
from collections.abc import Set as AbstractSet
from contextlib import suppress
from ipaddress import IPv6Address
from pathlib import Path
from threading import Event, Lock, Thread

from nodeagent.agent.reporting.http_server import Pages, PageServer
from nodeagent.agent.reporting.socket_path import own_socket, remove_stale
from nodeagent.errors import NodeagentError
from nodeagent.model.addresses import Endpoint

_log = logging.getLogger(__name__)

# Both may be temporary: the older agent ends; one of the node's own addresses is added after the agent, at
# boot.
_PASSING = {errno.EADDRINUSE, errno.EADDRNOTAVAIL}


class TelemetryError(NodeagentError):
    """The pages can't be served at the configured address. The node itself was left as it was."""


class TelemetryServer:
    """The agent's pages, served until `close`. One per process: the unix socket has the process's number.

    Args:
        pages: what is served.
        endpoint: the TCP address (`TelemetryOptions.listen`); None: no TCP at all.
        run_dir: the directory of the unix socket; None: there is none.
        retry_seconds: between two attempts at an address that is taken.
        names: this machine's own names, accepted in requests to the TCP address in addition to addresses.
    """

    def __init__(
        self,
        pages: Pages,
        endpoint: Endpoint | None,
        run_dir: Path | None,
        retry_seconds: float = 1.0,
        names: AbstractSet[str] = frozenset(),
    ) -> None:
        self._pages = pages
        self._endpoint = endpoint
        self._run_dir = run_dir
        self._retry_seconds = retry_seconds
        self._names = names
        self._servers: list[PageServer] = []
        self._lock = Lock()
        self._closing = Event()
        self._socket: str | None = None
        self._bound: Endpoint | None = None

    @property
    def bound(self) -> Endpoint | None:
        """The TCP address that is listened on now, with the port that the kernel chose; None: not (yet)."""
        return self._bound

    @property
    def socket_path(self) -> str | None:
        """The unix socket that is listened on now."""
        return self._socket

    def start(self) -> None:
        """Start to serve, and return at once. An address that is taken is logged and tried again.

        Raises:
            TelemetryError: the unix socket can't be made, or the address is never available (no permission);
                nothing is served then.
        """
        if self._run_dir is not None:
            self._serve_unix(self._run_dir)
        if self._endpoint is None:
            return
        problem = self._try_tcp(self._endpoint)
        if problem is None:
            return
        if problem.errno not in _PASSING:
            self.close()
            raise TelemetryError(
                f"{self._endpoint}: {os.strerror(problem.errno or 0)}: health and metrics can't be served "
                "there; set telemetry.listen to another address, or to '' for none"
            ) from problem
        _log.warning(
            "Could not listen for health and metrics; they are served as soon as the address is free. If an "
            "older "
            "agent that is about to end does not hold it (see ss -ltnp), set telemetry.listen to another "
            "address",
            extra={"fields": {"address": str(self._endpoint), "err": os.strerror(problem.errno or 0)}},
        )
        Thread(target=self._retry, args=(self._endpoint,), name="telemetry-bind", daemon=True).start()

    def close(self) -> None:
        """Stop serving, and remove the unix socket, with those that killed agents left. Idempotent."""
        self._closing.set()
        with self._lock:
            servers, self._servers = self._servers, []
            self._bound = None
        for server in servers:
            server.close()
        if self._socket is not None and self._run_dir is not None:
            Path(self._socket).unlink(missing_ok=True)
            self._socket = None
            with suppress(OSError):
                remove_stale(os.fspath(self._run_dir))

    def _serve_unix(self, run_dir: Path) -> None:
        try:
            path = own_socket(os.fspath(run_dir))
            listening = listen_unix(path)
            self._socket = path
            self._servers.append(PageServer(listening, self._pages))
            remove_stale(os.fspath(run_dir))
        except OSError as error:
            self.close()
            raise TelemetryError(f"no socket for health and metrics in {run_dir}: {error}") from error

    def _try_tcp(self, endpoint: Endpoint) -> OSError | None:
        """Serve at the endpoint, or report why that is not possible now."""
        try:
            listening = listen_tcp(endpoint)
        except OSError as error:
            return error
        port = listening.getsockname()[1]
        with self._lock:
            if self._closing.is_set():
                listening.close()
            else:
                self._servers.append(PageServer(listening, self._pages, self._names))
                self._bound = Endpoint(endpoint.address, port)
        return None

    def _retry(self, endpoint: Endpoint) -> None:
        while not self._closing.wait(self._retry_seconds):
            if self._try_tcp(endpoint) is None:
                _log.info("Began to serve health and metrics", extra={"fields": {"address": str(endpoint)}})
                return


_BACKLOG = 64


def listen_tcp(endpoint: Endpoint) -> socket.socket:
    """Return a listening socket at the endpoint; `[::]` accepts IPv4, too. Port 0: the kernel chooses.

    With SO_REUSEADDR, so that connections that just ended don't prevent a restart, and without SO_REUSEPORT:
    this module's docstring says why.

    Raises:
        OSError: with EADDRINUSE, EADDRNOTAVAIL and so on, as bind raises it.
    """
    family = socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET
    return socket.create_server(
        (str(endpoint.address), endpoint.port),
        family=family,
        backlog=_BACKLOG,
        dualstack_ipv6=endpoint.address == IPv6Address("::") and socket.has_dualstack_ipv6(),
    )


def listen_unix(path: str) -> socket.socket:
    """Return a listening socket at `path`, which only this user may open.

    Its directory (0700) is made if needed.

    A socket that an earlier process with the same number left at `path` is replaced.

    Raises:
        OSError: the directory or the socket can't be made; a path of more than 107 bytes is one reason.
    """
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(path).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
        Path(path).chmod(0o600)  # before listen: no process could connect until now
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
