"""Thousands of idle connections of one pod, through DNAT and the relay: the node still gets its answers."""

from __future__ import annotations

import re
import select
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.endtoend.asking import NAMED, assert_served, by_address
from tests.endtoend.configuration import configure
from tests.endtoend.matrix import in_two
from tests.testbed.inside import inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.testbed.agent import Agent
    from tests.testbed.world import World

pytestmark = in_two

_PORT = 443
_WHOLE = {"maxConnections": 400, "maxConnectionsPerListener": 4000, "maxConnectionsPerClient": 4000}
_LISTENER = {"maxConnections": 800, "maxConnectionsPerListener": 300, "maxConnectionsPerClient": 4000}


@contextmanager
def _idle(world: World, count: int, kept: int) -> Iterator[int]:
    """Pod 1 opens so many connections and sends nothing; yields how many the relay leaves open.

    It should leave `kept`: a busy machine takes its time for each that is closed until then.
    """
    address = str(world.service.load_balancer_ips[0])
    with ExitStack() as closing, select.epoll() as poll:
        left = {}
        with inside(world.pod1):
            for _ in range(count):
                try:
                    connection = closing.enter_context(socket.create_connection((address, _PORT), timeout=30))
                except ConnectionResetError:
                    continue  # Rejected before this side had seen that it was accepted.
                left[connection.fileno()] = connection
                poll.register(connection, select.EPOLLRDHUP | select.EPOLLHUP)
        # One second without any that is closed: the rest stays.
        while events := poll.poll(30 if len(left) > kept else 1):
            for number, _ in events:
                poll.unregister(number)
                left.pop(number)
        yield len(left)


def _assert_about(left: int, kept: int) -> None:
    """Never more; a few less, for one that is just being rejected still counts when the next one arrives."""
    assert kept - 10 <= left <= kept


def _assert_the_node_is_served(world: World) -> None:
    assert_served(world, world.node1, *NAMED, *by_address(world))


def test_nine_thousand_idle_connections_of_one_pod_take_nothing_from_the_node(
    world: World, agent: Agent
) -> None:
    """Nor is there anything to repair: status shows how many were rejected."""
    assert agent.apply().exit_code == 0
    assert_served(world, world.pod1, *by_address(world))
    with _idle(world, 9000, kept=1000) as left:
        _assert_about(left, 1000)
        _assert_the_node_is_served(world)
        status = agent.status()
        assert status.exit_code == 0, status
        rejected = max(int(number) for number in re.findall(r" (\d+) rejected", status.text))
        assert rejected >= 8000
        _assert_the_node_is_served(world)
    assert_served(world, world.pod1, *by_address(world))


@pytest.mark.parametrize(
    ("limits", "kept"), [(_WHOLE, 350), (_LISTENER, 300)], ids=["the-whole-relay", "one-listener"]
)
def test_nor_do_those_that_use_up_what_others_than_the_node_may_have(
    world: World, agent: Agent, limits: dict[str, int], kept: int
) -> None:
    """As many pods together could: here one may have it all, but for the node's eighth."""
    configure(agent, relay=limits)
    assert agent.apply().exit_code == 0
    with _idle(world, kept + 100, kept) as left:
        _assert_about(left, kept)
        _assert_the_node_is_served(world)
