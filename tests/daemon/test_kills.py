"""Killed at any moment, an agent leaves a node that works, and the next one continues from there."""

import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest

from tests.daemon.cluster_api import ClusterApi
from tests.daemon.made_objects import change_cluster, write_config
from tests.daemon.managed_state import names, redirects, structure, user_lines
from tests.daemon.running_agent import Agents, RunningAgent
from tests.testbed.inside import inside
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes
from tests.testbed.waiting import meanwhile, wait_until
from tests.testbed.world import World

_SEED = 4711
_BATCHES = 2
_KILLS = 10
"""A batch and node: with two nodes at the same time 40 in all."""
_KILLS_OF_A_SOAK = 50
_LONGEST_SECONDS = 0.9
_WORKING_SECONDS = 0.4
_RELAY_KILLS = 0.05
_START_SECONDS = 10.0
_FLOW_SECONDS = 0.02
_WRITES = "Became the writer"
_USERS = [
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
    *(f"10.9.{number}.1   user-{number}.example.net alias-{number}  # line {number}" for number in range(40)),
    "# the end of the user's lines",
]


@dataclass
class Tally:
    """What happened on one node: kills that hit the agent in a pass, and DNAT elements tried after kills."""

    in_first_pass: int = 0
    redirects: int = 0


@pytest.mark.timeout(300)
def test_many_kills(world: World, api: ClusterApi, soak: bool) -> None:
    """After each of them the user's lines are whole, the table is whole, and DNAT leads to what answers.

    After each batch the next start brings the node to what a fresh plan says.
    """
    print(f"seed {_SEED}")
    kills = _KILLS_OF_A_SOAK if soak else _KILLS
    config = write_config(world.tmp / "nodeagent.yaml")
    for node in world.nodes:
        node.write_hosts("".join(f"{line}\n" for line in _USERS).encode())
    with (
        Agents(world.node1, api, config) as first,
        Agents(world.node2, api, config) as second,
        ThreadPoolExecutor(2) as threads,
    ):
        both = (first, second)
        for agents in both:
            _converge(agents)
        whole = structure(world.node1)
        assert whole.count("tcp dport map @") == 4
        dice = [random.Random(f"{_SEED} {agents.node.name}") for agents in both]  # noqa: S311 - a test's dice
        tallies = [Tally(), Tally()]
        for batch in range(_BATCHES):
            flow = random.Random(f"{_SEED} {batch}")  # noqa: S311 - a test's dice
            # Load balancers and their Ingresses come, change and go.
            with meanwhile(partial(change_cluster, api.store, flow), _FLOW_SECONDS):
                done = [
                    threads.submit(_kill_often, agents, kills, dice, tally, whole)
                    for agents, dice, tally in zip(both, dice, tallies, strict=True)
                ]
                for one in done:
                    one.result()
            for one in [threads.submit(_converge, agents) for agents in both]:
                one.result()
        for node, tally in zip(world.nodes, tallies, strict=True):
            print(f"{node.name}: {tally}")
            assert list(node.etc.glob("*nodeagent*")) == [], (
                "nothing half-written is left beside the hosts file"
            )
        assert all(tally.in_first_pass > 0 and tally.redirects > 0 for tally in tallies)


def _kill_often(agents: Agents, kills: int, dice: random.Random, tally: Tally, whole: str) -> None:
    relay_may_start = False
    for _ in range(kills):
        agent = agents.start()
        pause = threading.Event()
        if dice.random() < 0.5:
            pause.wait(dice.uniform(0, _LONGEST_SECONDS))
        else:
            agent.await_line(_WRITES)
            pause.wait(dice.uniform(0, _WORKING_SECONDS))
        tally.in_first_pass += _is_in_first_pass(agent)
        agent.kill()
        tried = _assert_sound(agents.node, whole, _START_SECONDS if relay_may_start else 0.0)
        tally.redirects += tried
        relay_may_start = relay_may_start and tried == 0
        if dice.random() < _RELAY_KILLS:
            agents.node.run(["pkill", "-KILL", "-x", "haproxy"], check=False)
            relay_may_start = True


def _is_in_first_pass(agent: RunningAgent) -> bool:
    """Whether it writes and has not applied everything yet; no if it serves no page yet."""
    try:
        page = agent.page("/readyz")[1]
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return page.startswith("not ready: this process has not applied")


def _assert_sound(node: Host, whole: str, start_seconds: float) -> int:
    """No agent runs: the node stays as it is until the next one. Returns the number of redirects tried.

    An agent that was killed may have just started HAProxy, which listens within `start_seconds`.
    """
    assert user_lines(node) == _USERS
    assert structure(node) == whole
    if not living_processes(node, "haproxy"):
        # It was killed by this test, and no agent has lived long enough since to start it again.
        return 0
    standing = redirects(node)
    for match, target in standing.items():
        wait_until(
            partial(_accepts, node, target),
            f"{match} leads to {target}, where nothing answers",
            seconds=start_seconds,
        )
    return len(standing)


def _accepts(node: Host, target: str) -> bool:
    address, _, port = target.rpartition(":")
    try:
        with inside(node):
            socket.create_connection((address, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def _converge(agents: Agents) -> None:
    agent = agents.start_ready()
    agent.await_in_sync()
    agent.kill()
    assert user_lines(agents.node) == _USERS
    assert names(agents.node)
    for target in redirects(agents.node).values():
        assert _accepts(agents.node, target)
