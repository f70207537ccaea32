"""Something between a client and the API server, through which connections go."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Passage:
    """Forwards connections to a port; those that are open can be made silent.

    Without a port, it is a proxy for tunnels: each connection says where to, in a head.
    """

    def __init__(self, port: int = 0) -> None:
        self._to = port
        self.heads: list[bytes] = []
        self._silent = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = [self._listener]
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def silence(self) -> None:
        """Let nothing more through on the connections that are open; new ones work."""
        self._silent.set()
        self._silent = threading.Event()

    def close(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in self._open:
            each.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                port = self._to
                if not port:
                    self.heads.append(near.recv(65536))
                    port = int(self.heads[-1].split()[1].rpartition(b":")[2])
                    near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                far = socket.create_connection(("127.0.0.1", port))
                self._open += [near, far]
                self._start(self._copy, near, far, self._silent)
                self._start(self._copy, far, near, self._silent)

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, silent: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not silent.is_set():
                    sink.sendall(data)
            if not silent.is_set():
                sink.shutdown(socket.SHUT_WR)
