"""One HTTP connection: reads requests, lets faults strike, checks access, answers or streams."""

import gzip
import ssl
import time
from dataclasses import replace
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import msgspec

from . import containers, faults, replies, routes, selecting, statuses, watches
from .replies import Reply
from .resources import Resource
from .routes import Asked
from .selecting import Selector
from .traffic import Seen

if TYPE_CHECKING:
    from .listener import Listener
    from .server import ApiServer

_GZIP_FROM = 128 * 1024
"""The real server compresses answers above this size for clients that take gzip (KEP-156)."""

_END_OF_CHUNKS = b"0\r\n\r\n"

CONTROL = "/_control/"
"""A POST below it calls the store's method of that name: so a benchmark changes another process's objects."""


class Handler(BaseHTTPRequestHandler):
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

    @property
    def _api(self) -> "ApiServer":
        return cast("Listener", self.server).api

    def _serve(self) -> None:
        """Answer one request."""
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        if len(body) < size:  # the client was killed
            self.close_connection = True
            return
        path = urlsplit(self.path).path
        if path.startswith(CONTROL):
            method = getattr(self._api.store, path.removeprefix(CONTROL))
            method(**msgspec.json.decode(body))
            self._send(Reply(200, b"{}"))
            return
        asked = routes.read(self.command, self.path, self._api.store.resources)
        self._api.traffic.arrived(Seen(asked.verb, asked.path, asked.query))
        spoiled = self._struck(asked)
        if isinstance(spoiled, faults.Answer):
            self._send(_planned(spoiled))
        elif isinstance(spoiled, faults.Disconnect):
            self._end(watches.Ending.RESET if spoiled.reset else watches.Ending.DROP)
        else:
            self._answer(asked, body, spoiled if isinstance(spoiled, faults.CutBody) else None)

    # http.server looks for these names.
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _struck(self, asked: Asked) -> faults.Fault | None:
        """Wait as long as the armed faults say; give the one that spoils the answer."""
        for fault in self._api.faults.for_request(asked.verb, asked.path):
            if not isinstance(fault, faults.Hold):
                return fault
            fault.arrived()
            while not fault.hold(0.05):
                if self._api.closing.is_set():
                    return faults.Disconnect()
        return None

    def _answer(self, asked: Asked, body: bytes, cut: faults.CutBody | None) -> None:
        api = self._api
        try:
            user = api.access.user(self.headers.get("Authorization", ""))
            user = api.access.impersonated(user, self.headers.get("Impersonate-User", ""))
            selector = self._selector(asked)
            api.access.check(user, asked, asked.name or selector.name)
            if asked.unknown:
                self._send(Reply(404, b"404 page not found\n", "text/plain; charset=utf-8"))
                return
            if asked.missing:
                raise statuses.no_such_resource()
            if asked.subresource == "exec":
                self._execute(asked, user, cut)
                return
            if asked.verb == "watch":
                self._stream(asked, selector)
                return
            if asked.subresource == "log":
                api.store.version(_resource(asked), asked.namespace, asked.name)
                self._send(Reply(200, api.containers.log(asked), "text/plain"), cut)
                return
            reply = (
                replies.plain(asked.path, api.store.resources)
                if asked.resource is None
                else replies.answer(
                    api.store, asked, selector, body, self.headers.get("Content-Type", "").partition(";")[0]
                )
            )
        except statuses.ApiError as error:
            reply = replies.refusal(error)
        self._send(reply, cut)

    def _execute(self, asked: Asked, user: str, cut: faults.CutBody | None) -> None:
        """Run a command in a container over a websocket; raises ApiError while nothing has been sent yet."""
        api = self._api
        # Since Kubernetes 1.35 an upgraded GET takes the right that a POST takes, too.
        api.access.check(user, replace(asked, verb="create"), asked.name)
        api.store.version(_resource(asked), asked.namespace, asked.name)
        program = api.containers.prepare(asked, self.path)
        self.connection.sendall(
            self._head(
                101,
                [
                    ("Upgrade", "websocket"),
                    ("Connection", "Upgrade"),
                    ("Sec-WebSocket-Accept", containers.accept(self.headers.get("Sec-WebSocket-Key", ""))),
                    ("Sec-WebSocket-Protocol", containers.PROTOCOL),
                ],
            )
        )
        frames = containers.messages(program())
        self.connection.sendall(frames if cut is None else frames[: cut.after])
        self.close_connection = True

    def _selector(self, asked: Asked) -> Selector:
        if asked.resource is None or asked.missing or asked.verb not in {"list", "watch"}:
            return Selector()
        fields, labels = asked.query.get("fieldSelector", ""), asked.query.get("labelSelector", "")
        return selecting.parse(asked.resource, fields, labels)

    def _stream(self, asked: Asked, selector: Selector) -> None:
        """Serve a watch; raises ApiError while nothing has been sent yet."""
        api = self._api
        feed = watches.Feed(self.connection)
        try:
            stream = watches.Stream(api, asked, selector, feed, self._write_chunk)
            try:
                stream.follow()
            except statuses.ApiError as error:
                self._begin_stream()
                self._write_chunk(watches.error_line(error))
                self._end(watches.Ending.CLEAN)
                return
            self._end(stream.run(self._begin_stream))
        finally:
            feed.close()

    # Writing

    def _send(self, reply: Reply, cut: faults.CutBody | None = None) -> None:
        body = reply.body
        headers = [("Content-Type", reply.content_type), *reply.headers]
        if len(body) > _GZIP_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, 1)
            headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        head = self._head(reply.code, [*headers, ("Content-Length", str(len(body)))])
        self.connection.sendall(head + (body if cut is None else body[: cut.after]))
        if cut is not None:
            self._end(watches.Ending.DROP)

    def _begin_stream(self) -> None:
        self.connection.sendall(
            self._head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")])
        )

    def _write_chunk(self, data: bytes) -> None:
        self.connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def _end(self, ending: watches.Ending) -> None:
        if ending is watches.Ending.CLEAN:
            self.connection.sendall(_END_OF_CHUNKS)
            return
        if ending is watches.Ending.RESET:
            cast("Listener", self.server).reset_when_closed(self.connection)
        self.close_connection = True

    def _head(self, code: int, headers: list[tuple[str, str]]) -> bytes:
        lines = [
            f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
            "Cache-Control: no-cache, private",
            f"Date: {formatdate(time.time(), usegmt=True)}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _resource(asked: Asked) -> Resource:
    assert asked.resource is not None, "a subresource is one of a resource"
    return asked.resource


def _planned(fault: faults.Answer) -> Reply:
    """Give the answer that a fault asks for."""
    wait = (("Retry-After", str(fault.retry_after)),) if fault.retry_after is not None else ()
    headers = (*wait, *fault.headers)
    if fault.body is not None:
        return Reply(fault.code, fault.body, fault.content_type, headers)
    status = replies.refusal(statuses.ApiError(fault.code, "", HTTPStatus(fault.code).phrase))
    return replace(status, headers=headers)
