"""How an agent ends: the node is left as it is; daemonset/test_rehearsals.py has the uninstallation."""

import time
from pathlib import Path
from signal import SIGTERM

from tests.daemon.running_agent import Agents, RunningAgent
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

_BOUND_SECONDS = 5.0
_LAYER_MIB = 32
_RUNBOOK = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text("utf-8")


def test_what_the_runbook_says_for_one_node_leaves_it_as_it_was(world: World, agents: Agents) -> None:
    """Without a cluster and without `nodeagent cleanup`, which no node of a DaemonSet has."""
    node = world.node1
    before = read_state(node)
    assert _end(agents.start_ready()) < _BOUND_SECONDS
    for line in living_processes(node, "haproxy"):
        node.run(["kill", line.split()[0]], check=False)
    wait_until(lambda: not living_processes(node, "haproxy"), "the pod's end")
    lines = [line.strip() for line in _RUNBOOK.splitlines()]
    by_hand = [line for line in lines if line.startswith(("nft delete ", "sed -i ", "ip link delete "))]
    assert len(by_hand) == 3
    for line in by_hand:
        # A kernel without dummy devices has the addresses on lo, as the page says.
        node.run(["sh", "-ec", line], check=not line.startswith("ip link"))
    # The next boot removes the run directory; nothing leads there.
    left = read_state(node)
    assert (left.hosts, left.ruleset, left.iptables) == (before.hosts, before.ruleset, before.iptables)


def _end(agent: RunningAgent) -> float:
    """Send SIGTERM; returns the seconds until the end, which must be a good one."""
    began = time.monotonic()
    agent.process.signal(SIGTERM)
    assert agent.process.wait(seconds=2 * _BOUND_SECONDS) == 0
    took = time.monotonic() - began
    print(f"ended within {took:.2f} s")
    return took
