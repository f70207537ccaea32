"""A port that another user holds is reported with that user's id, and served as soon as it is free."""

import signal

import pytest

from tests.daemon.agents import Agents
from tests.daemon.cluster_api import ClusterApi
from tests.daemon.managed_state import names, redirects
from tests.testbed import addresses
from tests.testbed.errors import WorldError
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes
from tests.testbed.squatter import squatting
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_TAKEN = f"{addresses.LOAD_BALANCER_IP}:8443"


@pytest.mark.long
def test_a_taken_port_is_reported_as_an_event_and_used_again_when_free(
    world: World, api: ClusterApi, agents: Agents
) -> None:
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


def test_the_agent_holds_the_ports_while_haproxy_is_dead(world: World, agents: Agents) -> None:
    """Also one that found everything as desired; the older one holds nothing until it takes over again."""
    node = world.node1
    older = agents.start_ready()
    newer = agents.start_ready()
    older.await_line("Another process is to write; this one is on standby")
    newer.await_that(lambda: newer.page("/readyz")[1].startswith("ready\n"), "its own first sync")
    assert redirects(node)
    newer.signal(signal.SIGSTOP)
    older.signal(signal.SIGSTOP)
    try:
        _kill_haproxy(node)
        with pytest.raises(WorldError), squatting(node, "0.0.0.0", 8443):
            pass
        newer.kill()
        with squatting(node, "0.0.0.0", 8443):
            pass
    finally:
        older.signal(signal.SIGCONT)
    older.await_that(lambda: _TAKEN in redirects(node) and names(node), "the relay being back")


def _kill_haproxy(node: Host) -> None:
    node.run(["pkill", "-KILL", "-x", "haproxy"])
    wait_until(lambda: not living_processes(node, "haproxy"), "HAProxy being dead")
