"""With nodeagent, node and pods reach what the load balancer serves, under their own addresses."""

from collections.abc import Mapping
from ipaddress import ip_address

import pytest

from tests.endtoend.matrix import USUAL, Combination, in_a_few, in_one, in_pairs
from tests.endtoend.trying import NAMED, assert_cut, assert_served, configure, unnamed
from tests.testbed.agent import Agent
from tests.testbed.world import World

_Sections = dict[str, dict[str, object]]
_BOTH: _Sections = {}
_DNAT: _Sections = {"hosts": {"enabled": False}}
_HOSTS: _Sections = {"dnat": {"backend": "none"}}
# More than all sockets and pipes on its way can hold: four connections' buffers of 6 + 4 MiB, and two pipes.
_LAYER_MIB = 64
_SMALL_LAYER_MIB = 8


@in_pairs
@pytest.mark.parametrize(
    "sections", [_BOTH, _DNAT, _HOSTS], ids=["dnat and hosts", "dnat alone", "hosts alone"]
)
def test_the_node_and_its_pods_are_served(
    world: World, kept_agent: Agent, combination: Combination, sections: Mapping[str, Mapping[str, object]]
) -> None:
    """Pod1 is one of the ingress controller's own, as if it asked for its auth-url."""
    _apply(kept_agent, combination, sections)
    assert_served(world, world.node1, *NAMED)
    if sections is not _HOSTS:
        assert_served(world, world.node1, *unnamed(world))
        assert_served(world, world.pod1, *NAMED, *unnamed(world))
    else:
        # The node's hosts file is not theirs.
        assert_cut(world, world.pod1, *NAMED, *unnamed(world))
    for host in (world.node2, world.pod2):
        assert_cut(world, host, NAMED[0])


# By which rules the connection came to HAProxy is nothing to it, and asserted by the others.
@in_a_few
def test_a_large_layer_is_pulled_whole(world: World, kept_agent: Agent, combination: Combination) -> None:
    # How much can matter to HAProxy alone, and to it in one combination as in all.
    image = world.push_image(_LAYER_MIB if combination == USUAL else _SMALL_LAYER_MIB)
    _apply(kept_agent, combination, _BOTH)
    pulled = world.node1.containers.pull(image)
    assert pulled.ok, pulled.reason
    world.node1.containers.remove(image)


@in_pairs
def test_traffic_from_outside_is_as_before(world: World, kept_agent: Agent, combination: Combination) -> None:
    _apply(kept_agent, combination, _BOTH)
    with world.client_through(world.node1):
        # It has its own PROXY header, or none: either way nodeagent adds none.
        for url in NAMED:
            for family in world.families:
                answer = world.client.curl(url, proxy_protocol=True, extra=[f"-{family}"])
                assert answer.ok, (url, family, answer)
                assert answer.body.startswith(f"client={world.address(world.client, family)} ")
        assert_cut(world, world.client, *NAMED)


@in_pairs
def test_kube_proxys_sync_changes_nothing(world: World, kept_agent: Agent, combination: Combination) -> None:
    _apply(kept_agent, combination, _DNAT)
    world.node1.kube_proxy.sync()
    for host in (world.node1, world.pod1):
        assert_served(world, host, NAMED[0])
    assert kept_agent.status().exit_code == 0


def _apply(agent: Agent, combination: Combination, sections: Mapping[str, Mapping[str, object]]) -> None:
    usual: _Sections = {"hosts": {"enabled": True}, "dnat": {"backend": combination.backend}}
    configure(agent, **{**usual, **sections})
    assert agent.apply().exit_code == 0


@in_one
@pytest.mark.parametrize("dnat", [{"backend": "none"}, {"pods": False}], ids=["no DNAT", "no DNAT for pods"])
def test_a_pod_reaches_its_own_node_s_relay_straight_and_is_known_by_its_own_address(
    world: World, agent: Agent, dnat: dict[str, object]
) -> None:
    """What CoreDNS answers to pods is true on every node: this pod asks under the address it would get."""
    configure(agent, dnat=dnat, coredns={"servesPods": True})
    assert agent.apply().exit_code == 0
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
