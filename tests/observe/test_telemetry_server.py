"""Where the pages are served: one address, and two agents that want the same."""

import logging
import time
from ipaddress import ip_address

import pytest

from nodeagent.config.option_types import ListenAddress
from nodeagent.model.addresses import Endpoint
from nodeagent.observe.status import Status
from nodeagent.observe.telemetry_server import pages
from tests.observe.serving import connect, get, page, serving
from tests.testbed.waiting import wait_until

OLD = {"/readyz": lambda: page("old\n")}
NEW = {"/readyz": lambda: page("new\n")}


def test_the_option_says_where() -> None:
    """Both families, and nowhere."""
    assert ListenAddress.parse("127.0.0.1:9467").endpoint == Endpoint(ip_address("127.0.0.1"), 9467)
    assert ListenAddress.parse("[::1]:9467").endpoint == Endpoint(ip_address("::1"), 9467)
    assert ListenAddress.parse("[::]:1").endpoint == Endpoint(ip_address("::"), 1)
    assert ListenAddress.parse("").endpoint is None


@pytest.mark.parametrize(("listens", "asked"), [("::1", "::1"), ("::", "127.0.0.1"), ("::", "::1")])
def test_ipv6_and_all_addresses_are_served(listens: str, asked: str) -> None:
    """What a person expects who writes [::], with brackets in the option, without in the kernel."""
    with serving(OLD, Endpoint(ip_address(listens), 0)) as service:
        assert service.bound is not None
        assert get(Endpoint(ip_address(asked), service.bound.port), "/readyz").body == "old\n"


def test_nowhere_is_nowhere() -> None:
    """Nothing is opened, nothing fails."""
    with serving(OLD, None) as service:
        assert service.bound is None


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
    """And never takes it afterwards."""
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
