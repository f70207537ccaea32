"""If a component is not available, the others work, nothing points at nothing, and the words are clear."""

import re
from pathlib import Path
from typing import Any

from tests.endtoend.asking import NAMED, assert_cut, assert_served
from tests.endtoend.matrix import Combination, each_over, in_a_few, in_two
from tests.endtoend.second_service import SECOND_NAME, SECOND_SERVICE
from tests.testbed.addresses import bracketed
from tests.testbed.agent import Agent
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.world import World

_URL = NAMED[1]
_LEADS_TO_A_RELAY = re.compile(r"(?: : |--to-destination \[?)(?:169\.254\.66\.|fd68:6169:7270:).*")


@each_over(in_a_few)
def test_without_nft_the_hosts_file_serves_the_node(
    world: World, agent: Agent, combination: Combination
) -> None:
    answer = agent.apply(without=["nft"])
    if combination.backend == "iptables":
        # Legacy xtables have no need of it.
        assert answer.exit_code == 0, answer
        assert_served(world, world.pod1, _URL)
        return
    assert answer.exit_code == 1, answer
    assert "DNAT failed\n  There is no nft program on this node" in answer.text
    assert "apt-get install nftables" in answer.text
    assert_served(world, world.node1, _URL)
    assert_cut(world, world.pod1, _URL)
    mended = agent.apply()
    assert mended.exit_code == 0, mended
    assert_served(world, world.pod1, _URL)


@each_over(in_two)
def test_without_haproxy_nothing_is_pointed_at_the_relay(world: World, agent: Agent) -> None:
    """Neither if it was never there, nor if it died for good."""
    before = world.node1.read_hosts()
    answer = agent.apply(without=["haproxy"])
    assert answer.exit_code == 1, answer
    assert "Relay (HAProxy) failed" in answer.text
    assert "apt-get install haproxy" in answer.text
    _assert_nothing_points_at_the_relay(world, before)
    mended = agent.apply()
    assert mended.exit_code == 0, mended
    assert_served(world, world.node1, _URL)
    world.node1.run(["pkill", "-KILL", "-x", "haproxy"])
    answer = agent.apply(without=["haproxy"])
    assert answer.exit_code == 1, answer
    _assert_nothing_points_at_the_relay(world, before)


@each_over(in_a_few)
def test_a_relay_address_that_is_taken_costs_its_load_balancer_alone(
    world: World, agent: Agent, second_service: Path
) -> None:
    assert second_service.exists()
    path = SECOND_SERVICE.key
    planned = _load_balancers(agent)[path]
    assert planned["status"] == "served"
    relay = planned["relayAddresses"][-1]
    in_front = [f"http://{bracketed(ip)}/" for ip in SECOND_SERVICE.within(world.families).load_balancer_ips]
    # Not preferred: as a source it would hinder the node's other traffic.
    world.node1.run(["ip", "address", "add", relay, "dev", "eth0", "preferred_lft", "0"])
    try:
        answer = agent.apply()
        reason = f"its relay address {relay} is already used on eth0 by another program"
        refused = _load_balancers(agent)[path]
        assert (refused["status"], refused["code"]) == ("refused", "AddressInUse")
        assert refused["reason"].startswith(reason)
        for host in (world.node1, world.pod1):
            assert_served(world, host, _URL)
        assert_cut(world, world.node1, *in_front)
        assert SECOND_NAME.encode() not in world.node1.read_hosts()
        assert reason in answer.text, "apply says what it did not do"
        assert "eth0" in world.node1.run(["ip", "-oneline", "address", "show", "to", relay]).stdout
    finally:
        world.node1.run(["ip", "address", "flush", "to", relay, "dev", "eth0"])
    assert agent.apply().exit_code == 0
    assert_served(world, world.node1, *in_front)


def _load_balancers(agent: Agent) -> dict[str, dict[str, Any]]:
    found = agent.plan("-o", "json").document["loadBalancers"]
    return {f"{one['service']['namespace']}/{one['service']['name']}": one for one in found}


def _assert_nothing_points_at_the_relay(world: World, hosts: bytes) -> None:
    assert living_processes(world.node1, "haproxy") == []
    assert world.node1.read_hosts() == hosts
    state = read_state(world.node1)
    # The guard exists, and names the ranges; no entry leads there.
    assert _LEADS_TO_A_RELAY.findall(state.ruleset + state.iptables) == []
    assert_cut(world, world.node1, _URL)
