"""Sockets in the network of one of the testbed's hosts, for this process to use from outside."""

import ctypes
import http.client
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.testbed.namespaces import Host

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def socket_in(host: Host, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """Make a socket in a host's network namespace: it stays there, whichever thread uses it.

    A thread of its own enters the namespace and ends with it.

    Raises:
        OSError: no right to enter, or no such socket.
    """

    def make() -> socket.socket:
        with Path(f"/proc/{host.pid}/ns/net").open("rb") as namespace:
            if _libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        return socket.socket(family, kind, protocol)

    with ThreadPoolExecutor(1) as entering:
        return entering.submit(make).result()


class HttpConnection(http.client.HTTPConnection):
    """HTTP from a client on one of the hosts; the connection is kept.

    Args:
        host: where the client is.
        server: the server's address.
        port: its port.
    """

    def __init__(self, host: Host, server: str, port: int) -> None:
        super().__init__(server, port, timeout=60)
        self._where = host

    def connect(self) -> None:
        """Connect from the host's network."""
        self.sock = socket_in(self._where, socket.AF_INET, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect((self.host, self.port))


class HttpsConnection(HttpConnection):
    """The same with TLS.

    Args:
        host: where the client is.
        server: the server's address.
        port: its port.
        tls: whom it trusts.
    """

    def __init__(self, host: Host, server: str, port: int, tls: ssl.SSLContext) -> None:
        super().__init__(host, server, port)
        self._tls = tls

    def connect(self) -> None:
        """Connect from the host's network, and secure the connection."""
        super().connect()
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
