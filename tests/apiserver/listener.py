"""The listening socket and the connections that came through it."""

import errno
import socket
import ssl
import struct
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .server import ApiServer

_SECONDS = 5.0


class Listener(ThreadingHTTPServer):
    """A threaded HTTP server that knows whose requests it takes and its connections, and can cut these."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, api: "ApiServer", address: str, port: int, handler: type[BaseHTTPRequestHandler]
    ) -> None:
        self.api = api
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._tls = api.context
        self._idle = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._resets: set[socket.socket] = set()
        self.failures: list[BaseException] = []
        super().__init__((address, port), handler)
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, name="apiserver-listener", daemon=True
        )

    def start(self) -> None:
        """Accept connections, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more; connections that are open go on."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def drop_connections(self) -> None:
        """Cut all open connections and wait until their threads are done with them."""
        with self._idle:
            for connection in self._connections:
                try:
                    # Not the TLS socket's own shutdown: that one takes its state away from the other thread.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
                except OSError as error:
                    # The client, or the connection's own thread, was faster.
                    if error.errno not in {errno.ENOTCONN, errno.EBADF}:
                        raise
            if not self._idle.wait_for(lambda: not self._connections, _SECONDS):
                raise TimeoutError(
                    f"{len(self._connections)} connection(s) did not end within {_SECONDS:g} s"
                )

    def reset_when_closed(self, connection: socket.socket) -> None:
        """Let a connection end with a TCP reset (the connection's own thread calls this)."""
        with self._idle:
            self._resets.add(connection)

    # What socketserver calls

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; the TLS handshake is left to the connection's thread."""
        connection, address = super().get_request()
        if self._tls is None:
            return connection, address
        try:
            wrapped = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except OSError:
            connection.close()
            raise
        return wrapped, address

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Serve a connection in a thread of its own."""
        with self._idle:
            self._connections.add(request)
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Serve a connection, after its TLS handshake."""
        if isinstance(request, ssl.SSLSocket):
            try:
                request.do_handshake()
            except (ssl.SSLError, ConnectionError):
                # A client that does not trust our certificate, or is gone: it knows, and no other is hurt.
                return
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Close a connection and forget it."""
        with self._idle:
            reset = request in self._resets
            self._resets.discard(request)
        if reset:
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_request(request)
        else:
            super().shutdown_request(request)
        with self._idle:
            self._connections.discard(request)
            self._idle.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as in socketserver
        """Keep a bug of the server for `failures`, which the owner raises when it closes."""
        error = sys.exc_info()[1]
        assert error is not None, "called in an except clause"
        self.failures.append(error)


def held_port(address: str, port: int) -> socket.socket:
    """Hold a port while nothing listens on it: connections are refused, no program can take it."""
    held = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, port))
    return held


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[int]:
    """Give ports of 127.0.0.1 on which no process listens now."""
    with ExitStack() as stack:
        free = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for _ in range(count)]
        for each in free:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in free]
