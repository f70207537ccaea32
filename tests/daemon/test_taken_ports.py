"""A port that another user holds is reported with that user's id, and served as soon as it is free."""

import pytest

from tests.daemon.agents import Agents
from tests.daemon.cluster_api import ClusterApi
from tests.daemon.managed_state import names, redirects
from tests.testbed import addresses
from tests.testbed.squatter import squatting
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
