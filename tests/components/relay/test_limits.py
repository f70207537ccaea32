"""Idle connections of some clients take nothing from the node or from other clients."""

import re
import resource
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.agent.comparison import read_listener_status
from nodeagent.components.node import ActualState, build_components
from nodeagent.components.relay.activation import fair_share
from nodeagent.config.options import Config, DnatOptions, RelayOptions
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import Desired
from nodeagent.model.objects import ObjectRef
from tests.components.relay.backend import backend, who
from tests.components.relay.node import CONFIG, NODE, POD, KeptRelay, isolated, listener

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


@isolated
def test_idle_connections_of_one_pod_leave_the_node_and_other_pods_their_answer(relays: KeptRelay) -> None:
    with backend(A.server):
        relays.serve([A])
        with _idle(A.bind, POD, 9000) as left:
            assert left == 444
            assert relays.servers()[A.bind].rejected == 8556
            started = time.monotonic()
            assert who(A.bind) == f"v1 {NODE}"
            assert who(A.bind, NODE) == f"v1 {NODE}"
            assert who(A.bind, OTHER) == f"v1 {OTHER}"
            assert time.monotonic() - started < 5
            assert not relays.difference([A])


@pytest.mark.parametrize("limit", ["all", "listener"])
@isolated
def test_however_many_clients_there_are_the_node_gets_its_answer(limit: str) -> None:
    options = RelayOptions(
        launch=True, max_connections=160, max_connections_per_listener=1000 if limit == "all" else 100
    )
    other = listener(port=80, node=NODE)
    relays = KeptRelay(options)
    with backend(A.server), backend(other.server):
        relays.serve([A, other])
        with ExitStack() as held:
            left = [held.enter_context(_idle(A.bind, f"127.0.1.{number}", 80)) for number in range(1, 4)]
            # An eighth of what is free. One that is being closed still counts: the others may have fewer.
            assert left[0] == (15 if limit == "all" else 11)
            assert left[0] >= left[1] >= left[2] > 0
            assert who(A.bind, OTHER) == f"v1 {OTHER}"
            assert who(A.bind) == f"v1 {NODE}"
            if limit == "listener":
                assert who(other.bind, POD) == f"v1 {POD}"
            assert who(other.bind, NODE) == f"v1 {NODE}"


@isolated
def test_status_shows_what_was_rejected() -> None:
    options = RelayOptions(launch=True, max_connections_per_listener=540)
    components = build_components(Config(relay=options, dnat=DnatOptions(backend="none")), adopt=False)
    with backend(A.server):
        KeptRelay(options).serve([A])
        standing = read_listener_status(Desired(listeners=(A,)), ActualState(components))[A.bind]
        assert "rejected" not in (standing.backend or "")
        with _idle(A.bind, POD, 80) as left:
            assert left == 60
            standing = read_listener_status(Desired(listeners=(A,)), ActualState(components))[A.bind]
            assert (standing.backend or "").endswith(" connections, 20 rejected")


@isolated
def test_too_few_file_descriptors_are_reported_before_haproxy_is_touched(relays: KeptRelay) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    with pytest.raises(ApplyError, match=r"needs up to \d+ file descriptors(?s:.*)limit is 4096(?s:.*)Lower"):
        relays.serve([A])
    assert not relays.state().running
    fewer = KeptRelay(RelayOptions(launch=True, max_connections=1000))
    fewer.serve([A])
    assert fewer.ready_of([A]) == {A.bind}


_COUNTED = Path(__file__).with_name("counted.nft")
_MANY = 384
_SECONDS = 5


@isolated
def test_a_namespace_with_many_dead_servers_sends_few_packets_and_slows_no_other(relays: KeptRelay) -> None:
    """Anyone who can write an EndpointSlice chooses where the health checks of each node go."""
    subprocess.run(["ip", "route", "add", "10.96.0.99", "dev", "lo"], check=True)
    subprocess.run(["nft", "-f", _COUNTED], check=True)
    tenant = ObjectRef("Service", "tenant", "web")
    dead = [listener(port=port, server="10.96.0.99", owner=tenant) for port in range(2000, 2000 + _MANY)]
    relays.serve([A, *dead])
    before = _syns()
    time.sleep(_SECONDS)
    # Up to five for each of ten checks a second (net.ipv4.tcp_syn_linear_timeouts).
    assert 0 < (_syns() - before) / _SECONDS < 65
    # The others' are a hundred a second, in all.
    assert "inter 10s fastinter 4s downinter 4s" in CONFIG.read_text()
    assert relays.ready_of([A, *dead]) == {each.bind for each in (A, *dead)}


def _syns() -> int:
    told = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
    (count,) = re.findall(r"counter packets (\d+)", told)
    return int(count)


@given(st.lists(st.integers(1, 100)), st.integers(0, 500))
@example([2, 3], 5)
def test_a_fair_share_is_the_largest_that_fits(counts: list[int], most: int) -> None:
    share = fair_share(counts, most)
    assert sum(min(count, share) for count in counts) <= most or not share
    assert share >= max(counts, default=0) or sum(min(count, share + 1) for count in counts) > most
