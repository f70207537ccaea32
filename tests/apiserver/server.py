"""The simulated API server as tests use it, and a proxy with the same faults before a real one."""

import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Self

import msgspec
import yaml

from tests.testbed.certificates import make_certificate

from .answers import Answers, Reply
from .faults import Faults
from .listener import Listener
from .requests import Asked
from .resources import Resource
from .traffic import Ending, Traffic
from .wire import Peer, opened

CONTROL = "/_control/"
"""A POST below it calls the store's method of that name: so a benchmark changes another process's objects."""

_OF_THE_CONNECTION = {"Host", "Connection"}


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of the server's certificate, and of the authority that clients verify it with."""

    certificate: Path
    key: Path
    authority: Path


def self_signed(folder: Path, address: str) -> Tls:
    """Make a certificate for an IP address, and its key, in a folder; clients verify it with itself."""
    certificate, key = make_certificate(folder, "kube-apiserver", f"subjectAltName=IP:{address}")
    return Tls(certificate, key, certificate)


class Front(ABC):
    """A server on a real socket, in which faults can be armed; a subclass gives the answers."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0, *, tls: Tls | None = None) -> None:
        self.faults = Faults()
        self.traffic = Traffic()
        self.closing = threading.Event()
        self.port = port
        self._address = address
        self._tls = tls
        self.context: ssl.SSLContext | None = None
        if tls is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(tls.certificate, tls.key)
        self._listener: Listener | None = None
        self._held: socket.socket | None = None
        self._failures: list[BaseException] = []

    @abstractmethod
    def answer(self, asked: Asked, request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        """Answer a request that no fault has struck."""

    @abstractmethod
    def wake(self) -> None:
        """Let those that wait for the next line of a stream look whether it must end."""

    @property
    def url(self) -> str:
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def __enter__(self) -> Self:
        self.start_listening()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all streams and connections; raises what went wrong inside the server meanwhile."""
        self.closing.set()
        if self._listener is not None:
            self.stop_listening()
        if self._held is not None:
            self._held.close()
        if self._failures:
            raise BaseExceptionGroup("the simulated API server failed", self._failures)

    def start_listening(self) -> None:
        """Listen (again, on the same port)."""
        assert self._listener is None, "it listens already"
        if self._held is not None:
            self._held.close()
            self._held = None
        self._listener = Listener(self, self._address, self.port)
        self.port = int(self._listener.server_address[1])

    def stop_listening(self) -> None:
        """Cut all connections and refuse new ones until `start_listening`; the objects stay."""
        listener = self._listener
        assert listener is not None, "it does not listen"
        listener.stop()
        # Held while nothing listens on it: connections are refused, no program can take it.
        self._held = socket.socket(listener.address_family)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind((self._address, self.port))
        self._listener = None
        self.end_watches(Ending.DROP)
        listener.drop_connections()
        self._failures += listener.failures

    def end_watches(self, how: Ending = Ending.CLEAN) -> None:
        """End all open streams: cleanly, as a server does that shuts down, or by cutting connections."""
        self.traffic.end_watches(how)
        self.wake()


class ApiServer(Answers, Front):
    """A simulated kube-apiserver on a real socket; tests write `store`, `access` and `containers`."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0, *, tls: Tls | None = None) -> None:
        Answers.__init__(self)
        Front.__init__(self, address, port, tls=tls)

    def answer(self, asked: Asked, request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        """Answer by the store, or write it as `CONTROL` says."""
        if asked.path.startswith(CONTROL):
            getattr(self.store, asked.path.removeprefix(CONTROL))(**msgspec.json.decode(body))
            return Reply(200, b"{}")
        return super().answer(asked, request, body)

    def wake(self) -> None:
        self.store.wake()

    def withdraw(self, *rows: Resource) -> None:
        """Let resources exist no more, as when their CustomResourceDefinition goes: streams end, too."""
        self.store.withdraw(*rows)
        self.traffic.end_watches(Ending.CLEAN, {f"{row.base}/{row.plural}" for row in rows})
        self.wake()

    def write_kubeconfig(self, path: Path, token: str | None = None) -> Path:
        """Write a kubeconfig file for this server; return its path.

        The bearer token in it is by default one that the default user is known by, if any.
        """
        authority = {} if self._tls is None else {"certificate-authority": str(self._tls.authority)}
        return write_kubeconfig(path, {"server": self.url, **authority}, token or self.access.a_token())


class Proxy(Front):
    """A server in front of another API server, which makes its answers fail."""

    def __init__(self, server: Peer) -> None:
        super().__init__()
        self._server = server
        self._streams: list[HTTPConnection] = []

    def answer(self, asked: Asked, request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        """Hand the request on, with its credentials."""
        connection, _ = opened(self._server)
        headers = {key: value for key, value in request.headers.items() if key not in _OF_THE_CONNECTION}
        with ExitStack() as whole:
            whole.enter_context(closing(connection))
            connection.request(request.command, request.path, body or None, headers)
            stream = connection.sock
            found = whole.enter_context(connection.getresponse())
            if asked.verb == "watch" and found.status == HTTPStatus.OK:
                whole.pop_all()
                stream.settimeout(None)
                self._streams.append(connection)
                if self.closing.is_set():  # and `wake` was perhaps called before
                    self.wake()
                return Reply(200, lines=lambda _: self._lines(found))
            packed = found.headers.get("Content-Encoding")
            encoding = (("Content-Encoding", packed),) if packed else ()
            return Reply(found.status, found.read(), found.headers["Content-Type"], encoding)

    @staticmethod
    def _lines(found: HTTPResponse) -> Generator[bytes, None, None]:
        with suppress(OSError, HTTPException):
            yield from iter(found.readline, b"")

    def wake(self) -> None:
        """End what the other server streams; lists and writes are answered to their end."""
        for connection in self._streams:
            if connection.sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        try:
            super().close()
        finally:
            for connection in self._streams:
                connection.close()


def write_kubeconfig(path: Path, cluster: Mapping[str, object], token: str | None) -> Path:
    """Write a kubeconfig of one cluster and one user, whose bearer token may be none; return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": dict(cluster)}],
        "users": [{"name": "u", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path
