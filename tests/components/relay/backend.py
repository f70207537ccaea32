"""Servers that require the PROXY header, as an ingress controller does, and clients of them."""

import hashlib
import socket
import socketserver
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path

from nodeagent.model.addresses import Endpoint
from tests.testbed.waiting import wait_until

_V2_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_BLOCK = bytes(hashlib.sha256(b"block").digest()) * 32769
"""A megabyte and a little, so that its repetitions fall on no boundary of a buffer."""


@dataclass(frozen=True)
class Seen:
    """What the PROXY header said; `source` is "local" for a health check."""

    version: str
    source: str


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        seen = self._header()
        assert isinstance(self.server, _Server)
        self.server.seen.append(seen)
        match self.rfile.readline().split():
            case [b"who"]:
                self.wfile.write(f"{seen.version} {seen.source}\n".encode())
            case [b"send", size]:
                for piece in _pieces(int(size)):
                    self.connection.sendall(piece)
            case [b"echo"]:
                while line := self.rfile.readline():
                    self.wfile.write(line)
            case _:
                return

    def _header(self) -> Seen:
        start = self.rfile.read(12)
        if start == _V2_SIGNATURE:
            command, family, length = struct.unpack("!BBH", self.rfile.read(4))
            body = self.rfile.read(length)
            size = {0x11: 4, 0x21: 16}.get(family, 0)
            return Seen("v2", str(ip_address(body[:size])) if command == 0x21 and size else "local")
        line = start + self.rfile.readline()
        match line.decode(errors="replace").split():
            case ["PROXY", "TCP4" | "TCP6", source, _, _, _]:
                return Seen("v1", str(ip_address(source)))
            case ["PROXY", "UNKNOWN", *_]:
                return Seen("v1", "local")
            case _:
                raise AssertionError(f"no PROXY line but {line!r}")


class Greeter(socketserver.StreamRequestHandler):
    """Speaks first, as servers of mail do."""

    def handle(self) -> None:
        self.wfile.write(b"220 hello\r\n")
        self.rfile.read(1)


class _PlainHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        line = self.rfile.readline()
        assert isinstance(self.server, _Server)
        self.server.lines.append(line)
        self.wfile.write(line)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, endpoint: Endpoint, handler: type[socketserver.StreamRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET
        self.seen: list[Seen] = []
        self.lines: list[bytes] = []
        super().__init__((str(endpoint.address), endpoint.port), handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing if a client disconnects: the test's own expectations show it if it matters."""


@contextmanager
def serving(endpoint: Endpoint, handler: type[socketserver.StreamRequestHandler]) -> Iterator[_Server]:
    with _Server(endpoint, handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


@contextmanager
def backend(endpoint: Endpoint) -> Iterator[list[Seen]]:
    """Serves on the endpoint; yields what the PROXY lines said so far, in order."""
    with serving(endpoint, _Handler) as server:
        yield server.seen


@contextmanager
def plain_backend(endpoint: Endpoint) -> Iterator[list[bytes]]:
    """Answers with the first line it gets, whatever that is; yields these lines so far."""
    with serving(endpoint, _PlainHandler) as server:
        yield server.lines


def connect(endpoint: Endpoint, source: str | None = None) -> socket.socket:
    return socket.create_connection(
        (str(endpoint.address), endpoint.port), timeout=10, source_address=(source, 0) if source else None
    )


def who(endpoint: Endpoint, source: str | None = None) -> str:
    """Version and source of the PROXY header that the server got for a connection of ours."""
    with connect(endpoint, source) as connection:
        connection.sendall(b"who\n")
        with connection.makefile("r") as answer:
            return answer.read().strip()


def echo(endpoint: Endpoint, source: str | None = None) -> socket.socket:
    """A connection whose server says again what it gets, and has done so once."""
    connection = connect(endpoint, source)
    connection.sendall(b"echo\n")
    assert echoes(connection)
    return connection


def echoes(connection: socket.socket) -> bool:
    """Whether both directions work."""
    connection.sendall(b"hello\n")
    return connection.recv(100) == b"hello\n"


def ended(connection: socket.socket) -> bool:
    """Whether the relay closes it, and sends nothing before."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


class Download:
    """A body of `size` bytes on its way through the relay, read as far as the test wants."""

    def __init__(self, endpoint: Endpoint, size: int) -> None:
        self._size = size
        self._connection = connect(endpoint)
        self._connection.sendall(f"send {size}\n".encode())
        self._digest = hashlib.sha256()
        self._buffer = bytearray(1 << 20)

    def read(self, count: int) -> int:
        """Reads up to that many bytes; returns how many arrived before the end."""
        done = 0
        while done < count:
            got = self._connection.recv_into(self._buffer, min(count - done, len(self._buffer)))
            if not got:
                break
            self._digest.update(memoryview(self._buffer)[:got])
            done += got
        return done

    def whole(self) -> bool:
        """Reads the rest and returns whether exactly the right bytes arrived."""
        while self.read(1 << 24):
            pass
        self._connection.close()
        expected = hashlib.sha256()
        for piece in _pieces(self._size):
            expected.update(piece)
        return self._digest.digest() == expected.digest()


def _pieces(size: int) -> Iterator[bytes]:
    for _ in range(size // len(_BLOCK)):
        yield _BLOCK
    yield _BLOCK[: size % len(_BLOCK)]


SERVED = "HTTP/1.1 200"


def start_site(server: Endpoint) -> None:
    """An HAProxy that requires the PROXY header and answers each request."""
    file = Path("/run/site.cfg")
    file.write_text(
        "defaults\n mode http\n timeout client 10s\n timeout http-request 10s\n"
        f"frontend site\n bind {server} accept-proxy\n"
        " http-request return status 200 content-type text/plain string served\n"
    )
    subprocess.run(["haproxy", "-D", "-f", str(file)], check=True)


@contextmanager
def load(endpoint: Endpoint, per_second: int) -> Iterator[tuple[list[str], Callable[[int], None]]]:
    """Make so many a second while the block runs, at most; yield what waits until it has made some more.

    After the block, the list has each one's answer or error.
    """
    fork = get_context("fork")
    end, result, made = fork.Event(), fork.SimpleQueue(), fork.Value("L")
    process = fork.Process(target=_connect_until, args=(end, endpoint, per_second, result, made))
    process.start()
    answers: list[str] = []

    def await_more(number: int) -> None:
        enough = made.value + number
        wait_until(lambda: made.value >= enough, f"{number} more connections", seconds=100)

    yield answers, await_more
    end.set()
    answers += result.get()
    process.join()


def _connect_until(
    end: Event, endpoint: Endpoint, per_second: int, result: SimpleQueue[list[str]], made: "Synchronized[int]"
) -> None:
    """One after the other: on a loopback interface each takes a fraction of a millisecond."""
    began = time.monotonic()
    answers: list[str] = []
    while not end.wait(max(0.0, began + len(answers) / per_second - time.monotonic())):
        try:
            with connect(endpoint) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                answers.append(connection.recv(len(SERVED)).decode())
        except OSError as error:
            answers.append(f"{time.monotonic() - began:.3f} s: {error!r}")
        made.value = len(answers)
    result.put(answers)
