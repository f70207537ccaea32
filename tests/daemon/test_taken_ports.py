"""A port that another user holds is told with that user's id, and served as soon as it is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.daemon.standing import names, redirects
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root
from tests.testbed.squatter import squatting

if TYPE_CHECKING:
    from tests.daemon.agents import Agents
    from tests.daemon.cluster_api import ClusterApi
    from tests.testbed.world import World

pytestmark = needs_root

_TAKEN = f"{addresses.LOAD_BALANCER_IP}:8443"


def test_a_taken_port_is_told_as_an_event_and_taken_back(
    world: World, api: ClusterApi, agents: Agents
) -> None:
    """Nothing tells the agent that it is free: it looks."""
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
