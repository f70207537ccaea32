"""Two agents on one node, as during an upgrade: exactly one writes, and no client notices the change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.daemon.connections import InFlight, requests
from tests.daemon.made_objects import ingress
from tests.daemon.managed_state import hosts_inode, names, read_managed_state, table
from tests.testbed import addresses
from tests.testbed.fixtures import needs_root

if TYPE_CHECKING:
    from tests.daemon.agents import Agents
    from tests.daemon.cluster_api import ClusterApi
    from tests.daemon.running_agent import RunningAgent
    from tests.testbed.world import World

pytestmark = needs_root

_WRITES = "Became the writer"
_STANDS_BY = "Another process is to write; this one is on standby"
_EVENTS = 20
_LAYER_MIB = 32


def test_the_newer_agent_takes_over_and_the_older_one_ends(
    world: World, api: ClusterApi, agents: Agents
) -> None:
    """Through the overlap no connection is lost, nothing is rewritten, and each event is applied once."""
    node = world.node1
    older = agents.start_ready()
    before = (read_managed_state(node), table(node), hosts_inode(node))
    with (
        InFlight(world, world.push_image(_LAYER_MIB)) as flight,
        requests(node),
        requests(node, f"http://{addresses.LOAD_BALANCER_IP}/"),
    ):
        newer = agents.start()
        newer.await_line(_WRITES)
        older.await_line(_STANDS_BY)
        newer.await_line("Load balancer served")
        assert (read_managed_state(node), table(node), hosts_inode(node)) == before
        assert _role(older) == "standby"
        applied = len(older.lines("Applied a change"))
        _make_events(api, newer, "overlap")
        assert len(older.lines("Applied a change")) == applied, "only the newer one writes"
        assert len(newer.lines("Applied a change", component="hosts")) > 0
        flight.check()

        assert older.stop() == 0
        _make_events(api, newer, "after")
        assert _role(newer) == "writer"
        for agent, lines in ((older, 1), (newer, 0)):
            assert len(agent.lines(_WRITES)) == 1, "no flapping"
            assert len(agent.lines(_STANDS_BY)) == lines
        flight.finish()


def _make_events(api: ClusterApi, agent: RunningAgent, what: str) -> None:
    """Create Ingresses one by one, and see each of them in the hosts file."""
    for number in range(_EVENTS):
        name = f"{what}-{number}"
        api.store.create(ingress(name, [f"{name}.example.test"]))
        agent.await_that(lambda name=name: f"{name}.example.test" in names(agent.node), name)


def _role(agent: RunningAgent) -> str:
    """Return the role that the agent says it has."""
    _, text = agent.page("/readyz")
    return text.splitlines()[1].removeprefix("role: ").partition(":")[0]
