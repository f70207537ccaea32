"""Sockets in the network of one of the testbed's hosts, for this process to use from outside."""

import http.client
import socket
import ssl

from tests.testbed.inside import inside
from tests.testbed.namespaces import Host


def socket_in(host: Host, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """Make a socket in a host's network namespace: it stays there, whichever thread uses it.

    Raises:
        OSError: no right to enter, or no such socket.
    """
    with inside(host):
        return socket.socket(family, kind, protocol)


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
