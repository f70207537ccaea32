"""Every ending of a connection is distinguished from the others; the servers are real sockets."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from unittest.mock import Mock

import pytest

from nodeagent.model.addresses import Endpoint
from nodeagent.sources import connection_tests
from nodeagent.sources.connection_tests import Ending, Probe, ProbeOutcome, ask, ask_all, proxy_line
from tests.cases import cases_of

HOST = ip_address("127.0.0.1")
_SHORT = 0.5
"""Seconds, for servers that never answer."""


@contextmanager
def serving(behave: Callable[[socket.socket], object]) -> Iterator[Endpoint]:
    with socket.create_server((str(HOST), 0)) as listener:
        ending = threading.Event()

        def serve() -> None:
            while not ending.is_set():
                connection, _ = listener.accept()
                with connection:
                    if not ending.is_set():
                        behave(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        endpoint = Endpoint(HOST, listener.getsockname()[1])
        try:
            yield endpoint
        finally:
            ending.set()
            socket.create_connection((str(HOST), endpoint.port)).close()
            thread.join()


def _until_closed(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def _answering(answer: bytes) -> Callable[[socket.socket], None]:
    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    return behave


def _resetting(connection: socket.socket) -> None:
    connection.recv(1)
    # Lingering for no time makes the kernel reset (socket(7), SO_LINGER).
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _reading(connection: socket.socket) -> None:
    connection.recv(4096)


_BEHAVIOURS = {"reads": _reading, "resets": _resetting, "waits": _until_closed}
_LONG = f"HTTP/1.1 {'9' * 900}\r\n"


@pytest.mark.parametrize(
    ("does", "tls", "ending"), [*cases_of(__file__, "cases.yaml")["endings"], (_LONG, False, "NOT_HTTP")]
)
def test_each_ending_is_reported(does: str, *, tls: bool, ending: str) -> None:
    with serving(_BEHAVIOURS.get(does) or _answering(does.encode())) as endpoint:
        seconds = _SHORT if does == "waits" else 5.0
        assert ask(Probe(endpoint, None, tls, "site.example.com"), seconds).ending is Ending[ending]


def test_no_process_listens() -> None:
    with socket.create_server((str(HOST), 0)) as taken:
        free = Endpoint(HOST, taken.getsockname()[1])
    assert ask(Probe(free)).ending is Ending.REFUSED


def test_the_time_for_all_bounds_what_is_begun() -> None:
    with serving(_answering(b"HTTP/1.1 200 OK\r\n\r\n")) as endpoint:
        asked = Probe(endpoint)
        assert ask_all([asked], over=0.0) == {asked: ProbeOutcome(Ending.NOT_ASKED)}
        assert ask_all([asked, asked], over=float("inf")) == {asked: ProbeOutcome(Ending.STATUS, 200)}


def test_each_connection_has_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting = Mock(side_effect=TimeoutError)
    monkeypatch.setattr(connection_tests, "time", Mock(monotonic=lambda: 7.0))
    monkeypatch.setattr(socket, "create_connection", connecting)
    assert ask(Probe(Endpoint(HOST, 443))).ending is Ending.CONNECT_TIMEOUT
    assert [call.kwargs["timeout"] for call in connecting.mock_calls] == [5.0]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_line_comes_first_and_names_both_ends(version: str) -> None:
    received: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        peer = Endpoint(HOST, connection.getpeername()[1])
        own = Endpoint(HOST, connection.getsockname()[1])
        data = connection.recv(4096)
        header = proxy_line("v1" if version == "v1" else "v2", peer, own)
        received.append(data.removeprefix(header))
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" if data.startswith(header) else b"")

    with serving(behave) as endpoint:
        outcome = ask(Probe(endpoint, "v1" if version == "v1" else "v2", tls=False, host="site.example.com"))
    assert outcome == ProbeOutcome(Ending.STATUS, 200)
    assert received[0].startswith(b"HEAD / HTTP/1.1\r\nHost: site.example.com\r\n")


def test_the_headers_are_those_of_the_specification() -> None:
    source, destination = Endpoint(ip_address("192.0.2.7"), 50000), Endpoint(ip_address("203.0.113.10"), 443)
    assert proxy_line("v1", source, destination) == b"PROXY TCP4 192.0.2.7 203.0.113.10 50000 443\r\n"
    six, other = Endpoint(ip_address("2001:db8::7"), 1), Endpoint(ip_address("2001:db8::a"), 2)
    assert proxy_line("v1", six, other) == b"PROXY TCP6 2001:db8::7 2001:db8::a 1 2\r\n"
    binary = proxy_line("v2", source, destination)
    assert binary[:16].hex() == "0d0a0d0a000d0a515549540a" + "2111" + "000c"
    assert binary[16:].hex() == "c0000207" + "cb00710a" + "c350" + "01bb"
    assert proxy_line("v2", six, other)[12:16].hex() == "2121" + "0024"
