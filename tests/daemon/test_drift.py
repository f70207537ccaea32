"""What others change of nodeagent's is repaired within a second, and the log says what was found."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.daemon.agents import Agents
from tests.daemon.managed_state import RELAY_RANGE, names, read_managed_state, redirects, relay_addresses
from tests.testbed import addresses
from tests.testbed.node_state import living_processes
from tests.testbed.world import World

_BOUND_SECONDS = 3.0
"""The promise is one second; the rest is for a machine that does other things too."""


@dataclass(frozen=True)
class Damage:
    """What another program does to a node, as a shell command; how it is seen; and the words of the log.

    `seen` shows whether the damage still exists.
    """

    component: str
    command: str
    seen: Callable[[World], bool]
    words: str


def _site_is_gone(world: World) -> bool:
    return addresses.SITE not in names(world.node1)


def _elements_are_gone(world: World) -> bool:
    return len(redirects(world.node1)) < 3


def _address_is_gone(world: World) -> bool:
    return not relay_addresses(world.node1)


def _relay_is_gone(world: World) -> bool:
    return not world.node1.curl(f"http://{addresses.SITE}/", timeout=0.5).ok


# One for each way in which damage is noticed; what else can be damaged is in tests/components.
_DAMAGES = {
    "the hosts file replaced": Damage(
        "hosts",
        "echo '127.0.0.1 localhost' >/etc/hosts.new && mv /etc/hosts.new /etc/hosts",
        _site_is_gone,
        "was changed",
    ),
    "an address removed": Damage(
        "addresses", f"ip -4 address flush to {RELAY_RANGE}", _address_is_gone, "was removed"
    ),
    "the table deleted": Damage(
        "dnat", "nft delete table inet nodeagent", _elements_are_gone, "changed by nft, process"
    ),
    "HAProxy killed": Damage("relay", "pkill -KILL -x haproxy", _relay_is_gone, "HAProxy stopped"),
}


@pytest.mark.parametrize("kind", _DAMAGES)
def test_damage_is_repaired_within_a_second(world: World, agents: Agents, kind: str) -> None:
    """Whatever was damaged, node and pods are served again, and everything is as it was before."""
    damage = _DAMAGES[kind]
    node = world.node1
    hosts = node.read_hosts()
    agent = agents.start_ready()
    before = read_managed_state(node)
    assert not damage.seen(world)

    node.run(["sh", "-ec", damage.command])
    done = time.monotonic()
    agent.await_that(lambda: agent.lines("Repaired drift"), "the repair", seconds=_BOUND_SECONDS)
    agent.await_that(lambda: not damage.seen(world), "the repair taking effect", seconds=_BOUND_SECONDS)
    took = time.monotonic() - done
    print(f"{kind}: repaired within {took:.2f} s")
    assert took < _BOUND_SECONDS

    line = agent.await_line("Repaired drift", component=damage.component)
    assert damage.words in line["found"], line
    agent.await_that(lambda: read_managed_state(node) == before, "all as before")
    agent.await_that(
        lambda: agent.metric("nodeagent_drift_repairs_total", component=damage.component) >= 1,
        "the repair being counted",
    )
    assert agent.metric("nodeagent_drift_conflict", component=damage.component) == 0
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
