"""If a component is not available, the others work, nothing points at nothing, and the words are clear."""

import re

from tests.endtoend.matrix import Combination, in_two
from tests.endtoend.trying import NAMED, assert_cut, assert_served
from tests.testbed.agent import Agent
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.world import World

_URL = NAMED[1]
_LEADS_TO_A_RELAY = re.compile(r"(?: : |--to-destination \[?)(?:169\.254\.66\.|fd68:6169:7270:).*")


@in_two
def test_without_nft_hosts_lines_serve_the_node(world: World, agent: Agent, combination: Combination) -> None:
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
    assert agent.apply().exit_code == 0
    assert_served(world, world.pod1, _URL)


@in_two
def test_without_haproxy_nothing_is_pointed_at_the_relay(world: World, agent: Agent) -> None:
    """Neither if it was never there, nor if it died for good."""
    before = world.node1.read_hosts()
    answer = agent.apply(without=["haproxy"])
    assert answer.exit_code == 1, answer
    assert "Relay (HAProxy) failed" in answer.text
    assert "apt-get install haproxy" in answer.text
    _assert_nothing_points_at_the_relay(world, before)
    assert agent.apply().exit_code == 0
    assert_served(world, world.node1, _URL)
    world.node1.run(["pkill", "-KILL", "-x", "haproxy"])
    answer = agent.apply(without=["haproxy"])
    assert answer.exit_code == 1, answer
    _assert_nothing_points_at_the_relay(world, before)


def _assert_nothing_points_at_the_relay(world: World, hosts: bytes) -> None:
    assert living_processes(world.node1, "haproxy") == []
    assert world.node1.read_hosts() == hosts
    state = read_state(world.node1)
    # The guard exists, and names the ranges; no entry leads there.
    assert _LEADS_TO_A_RELAY.findall(state.ruleset + state.iptables) == []
    assert_cut(world, world.node1, _URL)
