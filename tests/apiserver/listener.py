"""The listening socket, and its connections: requests are read, faults strike, answers are sent."""

import errno
import gzip
import socket
import ssl
import struct
import sys
import threading
from contextlib import ExitStack, closing, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast

from . import requests
from .answers import Reply, error_line, json_reply
from .faults import Answer, CutBody, CutLine, Disconnect, ErrorLine, Hold, Silence
from .requests import Asked
from .resources import ApiError
from .traffic import Ending

if TYPE_CHECKING:
    from .server import Front

_SECONDS = 5.0
_RESET = (1, 0)
"""SO_LINGER, for a close by a TCP reset."""
_GZIP_FROM = 128 * 1024
"""The real server compresses answers above this size for clients that take gzip (KEP-156)."""


class Listener(ThreadingHTTPServer):
    """A threaded HTTP server that knows whose requests it takes and its connections, and can cut these."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, front: "Front", address: str, port: int) -> None:
        self.front = front
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._idle = threading.Condition()
        self._connections: set[socket.socket] = set()
        self.failures: list[BaseException] = []
        super().__init__((address, port), _Handler)
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, name="apiserver-listener", daemon=True
        )
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
                raise TimeoutError(f"{len(self._connections)} connections did not end in {_SECONDS:g} s")

    # What socketserver calls

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; the TLS handshake is left to the connection's thread."""
        connection, address = super().get_request()
        if self.front.context is None:
            return connection, address
        try:
            wrap = self.front.context.wrap_socket
            return wrap(connection, server_side=True, do_handshake_on_connect=False), address
        except OSError:
            connection.close()
            raise

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        with self._idle:
            self._connections.add(request)
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in socketserver
        if isinstance(request, ssl.SSLSocket):
            try:
                request.do_handshake()
            except (ssl.SSLError, ConnectionError):
                # A client that does not trust our certificate, or is gone: it knows, and no other is hurt.
                return
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as in socketserver
        """Close a connection, by a reset if it lingers for no time, and forget it."""
        linger = struct.unpack("ii", request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        close = self.close_request if linger == _RESET else super().shutdown_request
        close(request)
        with self._idle:
            self._connections.discard(request)
            self._idle.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as in socketserver
        """Keep a bug of the server for `failures`, which the owner raises when it closes."""
        error = sys.exc_info()[1]
        assert error is not None, "called in an except clause"
        self.failures.append(error)


class _Handler(BaseHTTPRequestHandler):
    """Serves one connection; socketserver makes one for each."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Write no access log: tests look at `traffic`."""

    def handle(self) -> None:
        """Serve the connection's requests until it ends; that the client went away is no error."""
        try:
            super().handle()
        except (ConnectionError, ssl.SSLEOFError):
            # A write after the client's end is either of them, as OpenSSL has seen that end or not.
            self.close_connection = True

    def _serve(self) -> None:
        front = cast("Listener", self.server).front
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if len(body) < size:  # the client was killed
            self.close_connection = True
            return
        asked = requests.read(self.command, self.path)
        front.traffic.arrived(asked)
        strike = (asked.verb, asked.path)
        hold = front.faults.strike(*strike, Hold)
        if isinstance(hold, Hold):
            hold.arrived.release()
            while not hold.released.wait(0.05):
                if front.closing.is_set():
                    self.close_connection = True
                    return
        fault = front.faults.strike(*strike, Answer, Disconnect, CutBody)
        match fault:
            case Answer():
                self._send(_planned(fault))
            case Disconnect(reset):
                self._end(Ending.RESET if reset else Ending.DROP)
            case _:
                reply = front.answer(asked, self, body)
                if reply.lines is not None:
                    self._stream(front, asked, reply)
                else:
                    self._send(reply, fault.after if isinstance(fault, CutBody) else None)

    # http.server looks for these names.
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _send(self, reply: Reply, cut: int | None = None) -> None:
        body, headers = reply.body, [*reply.headers]
        if reply.code != HTTPStatus.SWITCHING_PROTOCOLS:
            headers += [("Content-Type", reply.content_type)]
            if len(body) > _GZIP_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
                body = gzip.compress(body, 1)
                headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
            headers += [("Content-Length", str(len(body)))]
        self._head(reply.code, headers)
        self.wfile.write(body[:cut])
        if cut is not None or reply.code == HTTPStatus.SWITCHING_PROTOCOLS:
            self.close_connection = True

    def _head(self, code: int, headers: list[tuple[str, str]]) -> None:
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, front: "Front", asked: Asked, reply: Reply) -> None:
        assert reply.lines is not None, "a watch"
        with front.traffic.watching(asked, self.connection) as watch, closing(reply.lines(watch)) as lines:
            self._head(200, [("Content-Type", reply.content_type), ("Transfer-Encoding", "chunked")])
            for line in lines:
                if watch.ending is not None:
                    break
                kinds = (Silence,) if b'"BOOKMARK"' in line[:20] else (Silence, ErrorLine, CutLine)
                match front.faults.strike("watch", asked.path, *kinds):
                    case Silence():
                        watch.is_over(wait=True)
                        break
                    case ErrorLine(code, reason, message):
                        self._write_chunk(error_line(ApiError(code, reason, message)))
                        break
                    case CutLine(reset):
                        self._write_chunk(line[: len(line) // 2])
                        watch.ending = Ending.RESET if reset else Ending.DROP
                        break
                self._write_chunk(line)
            self._end(watch.ending or Ending.CLEAN)

    def _write_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _end(self, ending: Ending) -> None:
        if ending is Ending.CLEAN:
            self.wfile.write(b"0\r\n\r\n")
            return
        if ending is Ending.RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", *_RESET))
        self.close_connection = True


def _planned(fault: Answer) -> Reply:
    """Return the answer that a fault asks for."""
    wait = (("Retry-After", str(fault.retry_after)),) if fault.retry_after is not None else ()
    status = json_reply(fault.code, ApiError(fault.code, "", HTTPStatus(fault.code).phrase).body()).body
    body = status if fault.body is None else fault.body
    return Reply(fault.code, body, fault.content_type, (*wait, *fault.headers))


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that no process has now, neither of TCP nor of UDP."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            tcp, udp = (
                stack.enter_context(socket.socket(socket.AF_INET, kind))
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
            )
            tcp.bind(("127.0.0.1", 0))
            with suppress(OSError):
                udp.bind(tcp.getsockname())
                found.append(tcp.getsockname()[1])
    return found
