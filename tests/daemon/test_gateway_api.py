"""The Gateway API next to Ingresses: its names are served like theirs, and removed with the API itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.apiserver import GATEWAY_API, objects
from tests.daemon.made_objects import ingress
from tests.daemon.managed_state import names
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from tests.daemon.agents import Agents
    from tests.daemon.cluster_api import ClusterApi
    from tests.testbed.world import World

pytestmark = needs_root

ROUTES = "httproutes.gateway.networking.k8s.io"


def test_the_names_of_routes_come_change_and_go_with_their_api(
    world: World, api: ClusterApi, agents: Agents
) -> None:
    """An Ingress's name stays through all of it, and nothing of it is an error."""
    node = world.node1
    api.store.serve(*GATEWAY_API)
    try:
        api.store.apply(objects.gateway("public", addresses=[str(addresses.LOAD_BALANCER_IP)]))
        api.store.apply(objects.http_route("site", hostnames=["route.example.test"]))
        agent = agents.start_ready()
        relay = names(node)[addresses.SITE]
        assert names(node)["route.example.test"] == relay
        assert node.curl("http://route.example.test/").body.startswith(f"client={addresses.NODE1} ")
        assert agent.metric("nodeagent_resource_coverage", resource=ROUTES, state="watched") == 1
        api.store.apply(objects.http_route("site", hostnames=["other.example.test"]))
        agent.await_that(lambda: "other.example.test" in names(node), "the Route's new name")
        assert "route.example.test" not in names(node)
        api.withdraw(*GATEWAY_API)
        agent.await_that(lambda: "other.example.test" not in names(node), "the name to go with its API")
        api.store.apply(ingress("more", ["more.example.test"]))
        agent.await_that(lambda: "more.example.test" in names(node), "the name of an Ingress")
        assert names(node)[addresses.SITE] == relay
        agent.await_that(
            lambda: agent.metric("nodeagent_resource_coverage", resource=ROUTES, state="not-served") == 1,
            "the metrics to say so",
        )
        assert agent.metric("nodeagent_api_up") == 1
    finally:
        api.withdraw(*GATEWAY_API)
