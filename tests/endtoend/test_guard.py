"""Only the node and its own pods reach the relay, with and without DNAT rules."""

from ipaddress import ip_address

import pytest

from tests.endtoend.matrix import in_one
from tests.endtoend.trying import NAMED, assert_cut, configure
from tests.testbed.agent import Agent
from tests.testbed.world import World


@in_one
@pytest.mark.parametrize("dnat", [{"backend": "none"}, {"pods": False}], ids=["no DNAT", "no DNAT for pods"])
def test_a_pod_reaches_its_own_node_s_relay_straight_and_is_known_by_its_own_address(
    world: World, agent: Agent, dnat: dict[str, object]
) -> None:
    """What CoreDNS answers to pods is true on every node: this pod asks under the address it would get."""
    configure(agent, dnat=dnat, coredns={"servesPods": True})
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
    # Where nothing leads pods to the relay, they are kept from it.
    configure(agent, coredns={"servesPods": False})
    assert agent.apply().exit_code == 0
    for relay in relays:
        assert not world.pod1.curl(NAMED[0], resolve=relay).ok
