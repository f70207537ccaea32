"""What others change of nodeagent's is repaired within a second, and the log says what was found."""

import time

import pytest

from tests.cases import cases_of
from tests.daemon.cluster_api import ClusterApi
from tests.daemon.managed_state import names, read_managed_state, redirects
from tests.daemon.running_agent import Agents
from tests.testbed import addresses
from tests.testbed.node_state import living_processes
from tests.testbed.squatter import squatting
from tests.testbed.world import World

_BOUND_SECONDS = 3.0
"""The promise is one second; the rest is for a machine that does other things too."""
_TAKEN = f"{addresses.LOAD_BALANCER_IP}:8443"


@pytest.mark.parametrize(("component", "command", "words"), cases_of(__file__, "cases.yaml")["damage"])
def test_damage_is_repaired(world: World, agents: Agents, component: str, command: str, words: str) -> None:
    """Whatever was damaged, node and pods are served again, and everything is as it was before."""
    node = world.node1
    hosts = node.read_hosts()
    agent = agents.start_ready()
    before = read_managed_state(node)
    assert addresses.SITE in before.names
    assert len(before.redirects) == 3

    def is_whole() -> bool:
        served = node.curl(f"http://{addresses.SITE}/", timeout=0.5).ok
        return served and read_managed_state(node) == before

    node.run(["sh", "-ec", command])
    done = time.monotonic()
    agent.await_that(lambda: agent.lines("Repaired drift"), "the repair", seconds=_BOUND_SECONDS)
    agent.await_that(is_whole, "all as before", seconds=_BOUND_SECONDS)
    took = time.monotonic() - done
    print(f"{component}: repaired within {took:.2f} s")
    assert took < _BOUND_SECONDS

    line = agent.await_line("Repaired drift", component=component)
    assert words in line["found"], line
    agent.await_that(
        lambda: agent.metric("nodeagent_drift_repairs_total", component=component) >= 1,
        "the repair being counted",
    )
    assert agent.metric("nodeagent_drift_conflict", component=component) == 0
    for host in (node, world.pod1):
        assert host.curl(f"http://{addresses.LOAD_BALANCER_IP}/").ok
    assert agent.plan().exit_code == 0
    assert len(living_processes(node, "haproxy")) == 2, "a master and a worker"
    node.write_hosts(hosts)


def test_a_fight_is_noticed_and_slowed_down(world: World, agents: Agents) -> None:
    """Another program drops our block again and again; log and metrics show it.

    How the delays grow is shown by tests/agent. When the other program has given up, the block is back.
    """
    node = world.node1
    agent = agents.start_ready()
    before = names(node)
    users = b"127.0.0.1\tlocalhost\n"
    while not (noticed := agent.lines("Another program keeps reverting a component", component="hosts")):
        agent.await_that(lambda: bool(names(node)), "the block standing")
        node.write_hosts(users)
    assert noticed[0]["level"] == "ERROR"
    # Longer than 1 s, if the other program was sometimes so fast that it undid a repair before it was read.
    assert "the next repair waits " in noticed[0]["reason"]
    agent.await_that(
        lambda: agent.metric("nodeagent_drift_conflict", component="hosts") == 1,
        "the conflict in the metrics",
    )
    agent.await_that(lambda: names(node) == before, "the block being back after the delay")
    assert node.read_hosts().startswith(users)


@pytest.mark.long
def test_a_taken_port_is_an_event_and_used_once_free(world: World, api: ClusterApi, agents: Agents) -> None:
    """No event reports that it is free: the agent checks."""
    with squatting(world.node1, "0.0.0.0", 8443):
        agent = agents.start_ready()
        agent.await_that(lambda: api.store.all("events"), "the Event")
        (event,) = api.store.all("events")
        assert (event["type"], event["reason"]) == ("Warning", "PortTaken")
        assert "a process of user 65534 on this node holds port 8443" in event["message"]
        assert event["involvedObject"]["name"] == "ingress-nginx-controller"
        assert redirects(world.node1)
        assert _TAKEN not in redirects(world.node1)
        assert names(world.node1) == {}
    agent.await_that(lambda: _TAKEN in redirects(world.node1), "the port being served")
    agent.await_that(lambda: names(world.node1), "the names being written")
