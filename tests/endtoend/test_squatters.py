"""A local user who binds the relay's port first gets no connection, and costs that one listener."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.endtoend.asking import NAMED, assert_served, by_address
from tests.endtoend.matrix import in_a_few
from tests.testbed.addresses import ANOTHER
from tests.testbed.squatter import squatting

if TYPE_CHECKING:
    from tests.testbed.agent import Agent
    from tests.testbed.world import World

pytestmark = in_a_few

_PORT = 8443


def test_a_port_that_a_local_user_took_first_costs_that_listener_alone(world: World, agent: Agent) -> None:
    """And is restored with the next pass once it is free."""
    before = world.node1.read_hosts()
    (planned,) = agent.plan("-o", "json").document["loadBalancers"]
    with ExitStack() as squatters:
        for relay in planned["relayAddresses"]:
            squatters.enter_context(squatting(world.node1, relay, _PORT))
        answer = agent.apply()
        assert answer.exit_code == 0, answer
        assert agent.status().exit_code == 0
        # A name carries the squatter's port, too: it is not written. DNAT serves the other ports.
        assert world.node1.read_hosts() == before
        assert_served(world, world.node1, *NAMED[:2], *by_address(world))
        assert_served(world, world.pod1, *NAMED[:2])
        for family in world.families:
            got = world.node1.curl(f"https://{ANOTHER}:{_PORT}/", extra=[f"-{family}"])
            assert not got.ok, got
        (decision,) = agent.status("-o", "json").document["loadBalancers"]
        assert decision["verdict"] == "served"
        taken = [remark for remark in decision["remarks"] if "a process of user 65534" in remark]
        assert len(taken) == len(planned["relayAddresses"]), decision
    assert agent.apply().exit_code == 0
    assert_served(world, world.node1, *NAMED)
    assert world.node1.read_hosts() != before
