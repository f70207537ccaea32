"""Only the node and its own pods reach the relay, with and without DNAT rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest

from tests.endtoend.asking import NAMED, assert_cut, assert_served
from tests.endtoend.configuration import configure
from tests.endtoend.matrix import in_one, in_two
from tests.testbed.addresses import SITE
from tests.testbed.agent import Agent
from tests.testbed.world import Node, World


@in_two
def test_a_neighbour_on_the_link_does_not_reach_the_relay(world: World, agent: Agent) -> None:
    """It routes the relay's range to the node, as anyone on the same link can."""
    configure(agent, dnat={"backend": "none"})
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


@in_one
@pytest.mark.parametrize("dnat", [{"backend": "none"}, {"pods": False}], ids=["no DNAT", "no DNAT for pods"])
def test_a_pod_reaches_its_own_node_s_relay_straight_and_is_known_by_its_own_address(
    world: World, agent: Agent, dnat: dict[str, object]
) -> None:
    """What CoreDNS answers to pods is true on every node: this pod asks under the address it would get."""
    configure(agent, dnat=dnat)
    applied = agent.apply()
    assert applied.exit_code == 0, applied
    assert_cut(world, world.pod1, NAMED[0])
    served = [
        one for one in agent.status("-o", "json").document["loadBalancers"] if one["status"] == "served"
    ]
    relays = [ip_address(text) for one in served for text in one["relayAddresses"]]
    assert {address.version for address in relays} == set(world.families)
    for relay in relays:
        for url in NAMED:
            answer = world.pod1.curl(url, resolve=relay)
            assert answer.ok, (url, relay, answer)
            own = world.address(world.pod1, relay.version)
            assert answer.body.startswith(f"client={own} "), (url, relay, answer)
