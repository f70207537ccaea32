import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import ip_address

import pytest

from nodeagent.config.option_types import ListenAddress
from nodeagent.model.addresses import Endpoint
from nodeagent.observe.status import Page, Status
from nodeagent.observe.telemetry_server import pages
from tests.observe.serving import connect, get, page, receive, serving
from tests.testbed.waiting import wait_until

PAGES = {"/healthz": lambda: page("alive\n")}
OLD = {"/readyz": lambda: page("old\n")}
NEW = {"/readyz": lambda: page("new\n")}


def test_the_option_says_where() -> None:
    assert ListenAddress.parse("127.0.0.1:9467").endpoint == Endpoint(ip_address("127.0.0.1"), 9467)
    assert ListenAddress.parse("[::1]:9467").endpoint == Endpoint(ip_address("::1"), 9467)
    assert ListenAddress.parse("[::]:1").endpoint == Endpoint(ip_address("::"), 1)
    assert ListenAddress.parse("").endpoint is None
    with serving(OLD, None) as service:
        assert service.bound is None


@pytest.mark.parametrize(("listens", "asked"), [("::1", "::1"), ("::", "127.0.0.1"), ("::", "::1")])
def test_ipv6_and_all_addresses_are_served(listens: str, asked: str) -> None:
    with serving(OLD, Endpoint(ip_address(listens), 0)) as service:
        assert service.bound is not None
        assert get(Endpoint(ip_address(asked), service.bound.port), "/readyz").body == "old\n"


def test_after_a_restart_the_same_port_is_had_at_once() -> None:
    """Connections that just ended do not hinder it (SO_REUSEADDR)."""
    with serving(OLD) as service:
        endpoint = service.bound
        assert get(endpoint, "/readyz").body == "old\n"
    with serving(NEW, endpoint) as service:
        assert service.bound == endpoint
        assert get(endpoint, "/readyz").body == "new\n"


def test_a_newer_agent_waits_for_the_older_ones_port_and_takes_it(caplog: pytest.LogCaptureFixture) -> None:
    """Without blocking; until then every connection reaches the older one; one warning, not one a try."""
    caplog.set_level(logging.INFO)
    with serving(OLD) as older:
        endpoint = older.bound
        began = time.monotonic()
        with serving(NEW, endpoint) as newer:
            assert time.monotonic() - began < 0.5
            assert newer.bound is None
            assert {get(endpoint, "/readyz").body for _ in range(20)} == {"old\n"}
            time.sleep(0.1)

            older.close()
            wait_until(lambda: len(caplog.records) == 2, "the port taken")
            assert get(endpoint, "/readyz").body == "new\n"
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    fields = {"address": str(endpoint), "reason": "Address already in use"}
    assert caplog.records[0].__dict__["fields"] == fields
    assert "telemetry.listen" in caplog.messages[0]


def test_an_agent_that_still_waits_for_the_port_can_end() -> None:
    with serving(OLD) as older:
        endpoint = older.bound
        with serving(NEW, endpoint):
            pass
    time.sleep(0.1)
    with pytest.raises(ConnectionRefusedError):
        connect(endpoint)


def test_who_asks_in_a_loop_has_the_metrics_made_once_a_second() -> None:
    made: list[int] = []

    def exposition() -> bytes:
        made.append(1)
        return f"metric {len(made)}\n".encode()

    with serving(pages(Status([]), exposition)) as service:
        began = time.monotonic()
        while len(made) < 3:
            assert get(service.bound, "/metrics").body == f"metric {len(made)}\n"
        assert time.monotonic() - began >= 2


@pytest.mark.parametrize("path", ["/", "/healthz/", "/metric", "/../etc/passwd", "/%68ealthz", "http://["])
def test_any_other_path_is_404_and_names_the_pages(path: str) -> None:
    with serving(PAGES) as service:
        reply = get(service.bound, path)
    assert (reply.status, reply.body) == (404, "no such page; there are /healthz\n")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "GE T", "\x00"])
def test_any_other_method_is_refused(method: str) -> None:
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
    with serving(PAGES) as service, ThreadPoolExecutor(4) as clients:
        found = clients.map(lambda _: get(service.bound, "/healthz").status, range(200))
        assert list(found) == [200] * 200
        with connect(service.bound) as connection:  # HTTP/1.0, as simple probes use it
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert receive(connection).status == 200
