"""Idle connections of some clients take nothing from the node or from other clients."""

import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nodeagent.components.node import ActualState, build_components, read_listener_status
from nodeagent.components.relay import Relay
from nodeagent.config.options import Config, DnatOptions, RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired
from tests.components.relay.backend import backend, who
from tests.components.relay.namespace import (
    NODE,
    POD,
    RELAY,
    apply,
    difference,
    isolated,
    listener,
    relay_component,
)

A = listener(node=NODE)
OTHER = "127.0.0.2"


@contextmanager
def _idle(endpoint: Endpoint, source: str, count: int) -> Iterator[int]:
    """Opens so many connections and sends nothing; yields how many the relay leaves open."""
    with ExitStack() as closing, select.epoll() as poll:
        left = {}
        for _ in range(count):
            connection = closing.enter_context(socket.socket())
            connection.bind((source, 0))
            connection.settimeout(0)
            connection.connect_ex((str(endpoint.address), endpoint.port))
            left[connection.fileno()] = connection
            poll.register(connection, select.EPOLLRDHUP | select.EPOLLHUP)
        # One second without any that is closed: the rest stays.
        while events := poll.poll(1):
            for number, _ in events:
                poll.unregister(number)
                left.pop(number)
        yield len(left)


def _rejected(relays: Relay) -> int:
    told = relays.statistics()
    assert isinstance(told, tuple)
    return sum(server.rejected for server in told)


@isolated
def test_nine_thousand_idle_connections_of_one_pod_leave_the_node_and_other_pods_their_answer() -> None:
    relays = relay_component()
    with backend(A.server):
        apply(relays, [A])
        with _idle(A.bind, POD, 9000) as left:
            assert left == 1000
            assert _rejected(relays) == 8000
            started = time.monotonic()
            assert who(A.bind) == f"v1 {NODE}"
            assert who(A.bind, NODE) == f"v1 {NODE}"
            assert who(A.bind, OTHER) == f"v1 {OTHER}"
            assert time.monotonic() - started < 5
            assert not difference(relays, [A])


@pytest.mark.parametrize("limit", ["all", "listener"])
@isolated
def test_however_many_clients_there_are_the_node_gets_its_answer(limit: str) -> None:
    options = RelayOptions(
        launch=True,
        max_connections=160,
        max_connections_per_listener=1000 if limit == "all" else 100,
        max_connections_per_client=60,
    )
    other = listener(port=80, node=NODE)
    relays = Relay(options)
    with backend(A.server), backend(other.server):
        apply(relays, [A, other])
        with ExitStack() as held:
            left = [held.enter_context(_idle(A.bind, f"127.0.1.{number}", 80)) for number in range(1, 4)]
            # One that is being closed still counts: the second may leave some of its share to the third.
            assert left[0] == 60
            assert max(left) <= 60
            assert sum(left) == (140 if limit == "all" else 100)
            assert who(A.bind) == f"v1 {NODE}"
            if limit == "listener":
                assert who(other.bind, POD) == f"v1 {POD}"
            assert who(other.bind, NODE) == f"v1 {NODE}"


@isolated
def test_status_shows_what_was_rejected() -> None:
    options = RelayOptions(launch=True, max_connections_per_client=60)
    components = build_components(Config(relay=options, dnat=DnatOptions(backend="none")), adopt=False)
    with backend(A.server):
        apply(components.relay, [A])
        standing = read_listener_status(Desired(listeners=(A,)), ActualState(components))[A.bind]
        assert "rejected" not in (standing.backend or "")
        with _idle(A.bind, POD, 80) as left:
            assert left == 60
            standing = read_listener_status(Desired(listeners=(A,)), ActualState(components))[A.bind]
            assert (standing.backend or "").endswith(" connections, 20 rejected")


@isolated
def test_too_few_file_descriptors_are_reported_before_haproxy_is_touched() -> None:
    relays = relay_component()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    with pytest.raises(ApplyError, match=r"needs up to \d+ file descriptors(?s:.*)limit is 4096(?s:.*)Lower"):
        apply(relays, [A])
    assert not relays.read().running
    fewer = Relay(RelayOptions(launch=True, max_connections=1000))
    apply(fewer, [A])
    assert fewer.ready([A]) == {A.bind}


@isolated
def test_many_servers_are_checked_slower() -> None:
    """At most a hundred checks each second, however many are down."""
    relays = relay_component()
    apply(relays, [listener(port=port) for port in range(2000, 2500)])
    assert "inter 10s fastinter 5s downinter 5s" in Path("/run/nodeagent/haproxy.cfg").read_text()
    assert len(relays.ready([listener(RELAY, port) for port in range(2000, 2500)])) == 500
