"""Only the node and its own pods reach the relay, with and without DNAT rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest

from tests.endtoend.asking import NAMED, assert_served
from tests.endtoend.configuration import configure
from tests.endtoend.matrix import in_a_few
from tests.testbed.addresses import SITE
from tests.testbed.agent import Agent
from tests.testbed.node import Node
from tests.testbed.world import World

pytestmark = in_a_few


@pytest.mark.parametrize("backend", [None, "none"], ids=["dnat", "hosts alone"])
def test_a_neighbour_on_the_link_does_not_reach_the_relay(
    world: World, agent: Agent, backend: str | None
) -> None:
    """It routes the relay's range to the node, as anyone on the same link can."""
    if backend:
        configure(agent, dnat={"backend": backend})
    answer = agent.apply()
    assert answer.exit_code == 0, answer
    (served,) = agent.status("-o", "json").document["loadBalancers"]
    for relay in map(ip_address, served["relayAddresses"]):
        with _routed(world, relay, world.node1):
            stranger = world.client.curl(f"http://{SITE}/", resolve=relay, extra=["--max-time", "2"])
            assert not stranger.ok, stranger
            assert "client=" not in stranger.body
        pod = world.pod1.curl(f"http://{SITE}/", resolve=relay)
        assert pod.ok, pod
    assert_served(world, world.node1, NAMED[0])


@contextmanager
def _routed(world: World, relay: object, node: Node) -> Iterator[None]:
    address = ip_address(str(relay))
    route = [str(address), "via", str(world.address(node, address.version)), "dev", "eth0", "onlink"]
    world.client.run(["ip", "route", "add", *route])
    try:
        yield
    finally:
        world.client.run(["ip", "route", "del", *route])
