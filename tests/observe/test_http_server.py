"""The server itself: its bounds, and how little it disturbs."""

import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from nodeagent.observe.status import Page
from tests.observe.serving import connect, get, page, receive, serving
from tests.testbed.waiting import wait_until

PAGES = {"/healthz": lambda: page("alive\n")}


@pytest.mark.parametrize("path", ["/", "/healthz/", "/metric", "/../etc/passwd", "/%68ealthz", "http://["])
def test_any_other_path_is_404_and_names_the_pages(path: str) -> None:
    """Nothing of the request is returned."""
    with serving(PAGES) as service:
        reply = get(service.bound, path)
    assert (reply.status, reply.body) == (404, "no such page; there are /healthz\n")


def test_who_names_no_host_is_answered() -> None:
    """HTTP/1.0, as simple probes use it: no browser does."""
    with serving(PAGES) as service, connect(service.bound) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert receive(connection).status == 200


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "GE T", "\x00"])
def test_any_other_method_is_refused(method: str) -> None:
    """With an error of the client's or `not implemented`."""
    with serving(PAGES) as service:
        assert get(service.bound, "/healthz", method).status in {400, 501}


def test_no_probe_leaves_a_word_in_the_log_or_on_standard_error(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A probe every few seconds is not worth a line; nor is a client that disconnects."""
    with caplog.at_level(logging.DEBUG), serving(PAGES) as service:
        get(service.bound, "/healthz")
        get(service.bound, "/nothing")
        get(service.bound, "/", "BREW")
        get(service.bound, "http://[")
        connect(service.bound).close()
        with connect(service.bound) as cut:
            cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # resets at close
            cut.sendall(b"GET /hea")
        assert get(service.bound, "/healthz").status == 200

    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_a_page_that_fails_is_one_record_and_the_server_goes_on(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The client sees a cut connection, the log the reason."""

    def broken() -> Page:
        raise ZeroDivisionError("of no use")

    with serving({**PAGES, "/metrics": broken}) as service:
        assert get(service.bound, "/metrics").status == 0
        assert get(service.bound, "/healthz").status == 200

    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)
    assert capfd.readouterr().err == ""


def test_idle_connections_keep_nobody_out_and_are_bounded() -> None:
    """No number of idle clients makes the agent grow, or keeps a probe of the kubelet from its answer."""
    before = threading.active_count()
    with serving(PAGES) as service, ExitStack() as clients:

        def connected() -> socket.socket:
            return clients.enter_context(connect(service.bound))

        idle = [connected() for _ in range(12)]
        for _ in range(15):
            assert get(service.bound, "/healthz").status == 200
            idle.append(connected())
        for connection in idle[:-8]:
            assert receive(connection).status == 0
        # A thread ends after its client has seen the end of the connection.
        wait_until(lambda: threading.active_count() - before <= 9, "one thread for each of eight connections")


def test_many_probes_at_once_are_all_answered() -> None:
    """Hundreds of them, from several clients."""
    with serving(PAGES) as service, ThreadPoolExecutor(4) as clients:
        found = clients.map(lambda _: get(service.bound, "/healthz").status, range(200))
    assert list(found) == [200] * 200
