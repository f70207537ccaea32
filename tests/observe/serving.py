"""A service on loopback, and a raw client: what is sent over the wire is seen as it is."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address

from nodeagent.model.addresses import Endpoint
from nodeagent.observe.status import Page
from nodeagent.observe.telemetry_server import Pages, TelemetryServer

ANY_PORT = Endpoint(ip_address("127.0.0.1"), 0)


@dataclass(frozen=True)
class Reply:
    """An HTTP answer; `status` is 0 where the connection was cut without one."""

    status: int
    headers: dict[str, str]
    body: str


def page(text: str) -> Page:
    return Page(ok=True, text=text)


@contextmanager
def serving(pages: Pages, endpoint: Endpoint | None = ANY_PORT) -> Iterator[TelemetryServer]:
    service = TelemetryServer(pages, endpoint, retry_seconds=0.02)
    service.start()
    try:
        yield service
    finally:
        service.close()


def connect(endpoint: Endpoint | None) -> socket.socket:
    assert endpoint is not None
    return socket.create_connection((str(endpoint.address), endpoint.port), timeout=5)


def get(
    endpoint: Endpoint | None, path: str, method: str = "GET", headers: str = "Host: node-1\r\n"
) -> Reply:
    with connect(endpoint) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\n{headers}\r\n".encode())
        return receive(connection)


def receive(connection: socket.socket) -> Reply:
    """All that arrives until the other side closes."""
    answer = b""
    try:
        while chunk := connection.recv(65536):
            answer += chunk
    except ConnectionResetError:
        return Reply(0, {}, "")
    if not answer:
        return Reply(0, {}, "")
    head, _, body = answer.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    return Reply(int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body)
