"""Users of the node: connections that stay open, downloads that go slowly, and requests without end."""

import hashlib
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from itertools import count
from pathlib import Path
from typing import Self

from tests.testbed.addresses import LOAD_BALANCER_IP, NODE1, REGISTRY, SITE
from tests.testbed.inside import inside
from tests.testbed.namespaces import Host
from tests.testbed.processes import Process
from tests.testbed.registry import MIB, Image
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_numbers = count(1)


class OpenConnection:
    """A TLS connection from node1 to the load balancer that is kept open, request after request."""

    def __init__(self, world: World) -> None:
        raw = world.node1.connect(LOAD_BALANCER_IP, 443)
        context = ssl.create_default_context(cafile=world.certificates.ca)
        self.http = HTTPSConnection(SITE)
        self.http.sock = context.wrap_socket(raw, server_hostname=SITE)
        # It must be this connection: a closed one must not be reopened silently.
        self.http.auto_open = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def check(self, client: str = f"{NODE1} ") -> None:
        """Send one more request; it must be answered, to this client."""
        self.http.request("GET", "/")
        body = self.http.getresponse().read().decode()
        assert body.startswith(f"client={client}"), body


class SlowDownload:
    """An image's layer, larger than all buffers on the way, that a host reads bit by bit."""

    def __init__(self, host: Host, image: Image) -> None:
        self._image = image
        self._digest = hashlib.sha256()
        self._size = 0
        with inside(host):
            connected = socket.socket()
        # A small buffer: what is on the way must not fit into it.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        connected.settimeout(20)
        connected.connect((str(LOAD_BALANCER_IP), 80))
        self._connection = HTTPConnection(REGISTRY)
        self._connection.sock = connected
        # A closed connection must not be reopened silently.
        self._connection.auto_open = 0
        repository = image.reference.removeprefix(f"{REGISTRY}/").removesuffix(":latest")
        self._connection.request("GET", f"/v2/{repository}/blobs/sha256:{image.layer.digest}")
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.status

    def check(self) -> None:
        """Read a bit more; it must not have ended."""
        self._take(MIB // 4)
        assert self._size < self._image.layer.size, "the download has ended: it should be larger"

    def finish(self) -> None:
        """Read the rest; all of it must have arrived, every byte as it was sent."""
        while self._take(MIB):
            pass
        self.close()
        assert (self._digest.hexdigest(), self._size) == (self._image.layer.digest, self._image.layer.size)

    def close(self) -> None:
        self._connection.close()

    def _take(self, size: int) -> bool:
        piece = self._answer.read(size)
        self._digest.update(piece)
        self._size += len(piece)
        return bool(piece)


class NewConnections:
    """One new connection after the other from a host, at an even rate; see new_connections.py."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def answered(self) -> int:
        return sum(int(line.split()[1]) for line in self._lines() if line.startswith("answered "))

    @property
    def failures(self) -> list[str]:
        return [line for line in self._lines() if not line.startswith(("answered ", "late "))]

    @property
    def late(self) -> list[str]:
        """When one took longer than 250 ms, and how long."""
        return [line for line in self._lines() if line.startswith("late ")]

    @property
    def longest_seconds(self) -> float:
        return max(float(line.split()[3]) for line in self._lines() if line.startswith("answered "))

    def await_more(self, more: int) -> None:
        wanted = self.answered + more
        wait_until(lambda: self.answered >= wanted, f"{more} more connections")

    def _lines(self) -> list[str]:
        whole, _, _ = self._process.log.read_text(encoding="ascii").rpartition("\n")
        return whole.splitlines()


@contextmanager
def new_connections(
    host: Host, per_second: int = 20, target: str = str(LOAD_BALANCER_IP)
) -> Iterator[NewConnections]:
    """Let a host make so many a second to the load balancer, as long as this lasts; all must be answered."""
    process = host.popen(
        [sys.executable, "-m", "tests.daemon.new_connections", target, str(per_second)],
        log=f"connections-{next(_numbers)}",
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    made = NewConnections(process)
    try:
        made.await_more(1)
        yield made
        made.await_more(5)
    finally:
        process.stop()
    assert made.failures == [], f"{made.answered} were answered"
