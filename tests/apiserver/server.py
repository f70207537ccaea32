"""The simulated API server as tests use it: started, stopped, made to fail, waited for."""

import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from tests.testbed.certificates import make_certificate

from .access import Access
from .containers import Containers
from .faults import Faults
from .handler import Handler
from .listener import Listener, held_port
from .resources import Resource
from .store import Store
from .traffic import Traffic
from .watches import Ending


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


class ApiServer:
    """A simulated kube-apiserver on a real socket.

    Attributes:
        store: the objects; tests write them here.
        containers: what runs in pods, for exec and log.
        context: the TLS settings; None for plain HTTP.
        bookmark_interval: seconds between bookmarks where a client allows them (the real server takes about
            a minute).
        closing: set when the server closes.
    """

    def __init__(
        self,
        address: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: Tls | None = None,
    ) -> None:
        self.store = Store()
        self.faults = Faults()
        self.access = Access()
        self.containers = Containers()
        self.traffic = Traffic()
        self.bookmark_interval = 0.5
        self.closing = threading.Event()
        self._address = address
        self._port = port
        self._tls = tls
        self.context: ssl.SSLContext | None = None
        if tls is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(tls.certificate, tls.key)
        self._listener: Listener | None = None
        self._held: socket.socket | None = None
        self._failures: list[BaseException] = []

    @property
    def port(self) -> int:
        """The port; stays the same when the server stops listening and starts again."""
        return self._port

    @property
    def url(self) -> str:
        """The server's address for clients."""
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

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
        listener = Listener(self, self._address, self._port, Handler)
        self._port = int(listener.server_address[1])
        listener.start()
        self._listener = listener

    def stop_listening(self) -> None:
        """Cut all connections and refuse new ones until `start_listening`; the objects stay."""
        listener = self._listener
        assert listener is not None, "it does not listen"
        listener.stop()
        self._held = held_port(self._address, self._port)
        self._listener = None
        listener.drop_connections()
        self._failures += listener.failures

    def end_watches(self, how: Ending = Ending.CLEAN) -> None:
        """End all open streams: cleanly, as a server does that shuts down, or by cutting connections."""
        self.traffic.end_watches(how, self.store.resources)

    def withdraw(self, *rows: Resource) -> None:
        """Let resources exist no more, as when their CustomResourceDefinition goes: streams end, too."""
        self.store.withdraw(*rows)
        self.traffic.end_watches(Ending.CLEAN, rows)

    def write_kubeconfig(self, path: Path, token: str | None = None) -> Path:
        """Write a kubeconfig file for this server; give its path.

        The bearer token in it is by default one that the default user is known by, if any.
        """
        cluster: dict[str, str] = {"server": self.url}
        if self._tls is not None:
            cluster["certificate-authority"] = str(self._tls.authority)
        return write_kubeconfig(path, cluster, token or self.access.a_token())


def write_kubeconfig(path: Path, cluster: Mapping[str, object], token: str | None) -> Path:
    """Write a kubeconfig of one cluster and one user, whose bearer token may be none; give its path."""
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
