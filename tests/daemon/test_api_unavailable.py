"""While the API is unavailable, the node keeps what it has, and the agent keeps repairing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.daemon.connections import requests
from tests.daemon.made_objects import ingress
from tests.daemon.managed_state import hosts_inode, names, read_managed_state, redirects, table
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from tests.daemon.agents import Agents
    from tests.daemon.cluster_api import ClusterApi
    from tests.testbed.world import World

pytestmark = needs_root

_LAYER_MIB = 32


def test_without_the_api_at_startup_the_node_keeps_what_it_has(
    world: World, api: ClusterApi, agents: Agents
) -> None:
    """An agent that finds no API says so, is alive and not ready, touches nothing, and continues later."""
    node = world.node1
    agents.start_ready().stop()
    before = (read_managed_state(node), table(node), hosts_inode(node))
    with requests(node), api.away():
        agent = agents.start()
        agent.await_page("/healthz", 200)
        told = agent.await_line("Could not read from the API server", resource="services")
        assert "Connection refused" in told["reason"]
        agent.await_that(
            lambda: "not ready: this agent has not applied" in agent.page("/readyz")[1], "/readyz telling why"
        )
        status, text = agent.page("/readyz")
        assert status == 503
        assert "Connection refused" in text
        assert (read_managed_state(node), table(node), hosts_inode(node)) == before
        assert agent.metric("nodeagent_api_up") == 0
    agent.await_ready()
    assert (read_managed_state(node), table(node), hosts_inode(node)) == before
    api.store.apply(ingress("more", ["more.example.test"]))
    agent.await_that(lambda: "more.example.test" in names(node), "what came later")


def test_with_the_api_away_for_life_nothing_is_withdrawn(
    world: World, api: ClusterApi, agents: Agents
) -> None:
    """After its first sync an agent needs no API: requests and an image pull go on, drift is repaired.

    Its end leaves all of that in place.
    """
    node = world.node1
    image = world.push_image(_LAYER_MIB)
    agent = agents.start_ready()
    before = (read_managed_state(node), table(node), hosts_inode(node))
    with api.away():
        with requests(node), requests(node, f"http://{addresses.LOAD_BALANCER_IP}/"):
            agent.await_line("Could not read from the API server")
            pulled = node.pull(image)
            assert pulled.ok, pulled.stderr
            node.containers.remove(image)
            assert (read_managed_state(node), table(node), hosts_inode(node)) == before

        node.run(["nft", "delete", "table", "inet", "nodeagent"])
        agent.await_that(lambda: redirects(node) == before[0].redirects, "the rules being back")
        node.run(["sed", "-i", f"/{addresses.SITE}/d", "/etc/hosts"])
        agent.await_that(lambda: names(node) == before[0].names, "the name being back")
        node.run(["pkill", "-KILL", "-x", "haproxy"])
        agent.await_line("Repaired drift", component="relay")
        agent.await_that(lambda: node.curl(f"http://{addresses.SITE}/").ok, "the relay being back")
        assert read_managed_state(node) == before[0]

        with requests(node):
            assert agent.stop() == 0
            assert read_managed_state(node) == before[0]
