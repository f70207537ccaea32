"""What the fork server starts does as a real start does."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.agent import Agent
from tests.testbed.errors import WorldError
from tests.testbed.fixtures import needs_root
from tests.testbed.forked import PYTHON
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

pytestmark = needs_root

_STAYS = (*PYTHON, "http.server", "9999")


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    with World() as standing:
        yield standing


def test_commands_answer_as_they_do_without_the_server(world: World) -> None:
    """Each of them is started for real here."""
    before = read_state(world.node1)
    real, forked = (_answers(Agent(world.node1, forked=forked)) for forked in (False, True))
    assert forked == real
    assert before.differences(read_state(world.node1)) == []


def _answers(agent: Agent) -> list[tuple[int, str]]:
    first = [agent.plan(), agent.apply(), agent.plan("-o", "json")]
    wait_until(lambda: "Initializing" not in agent.status().text, "HAProxy having finished its checks")
    answers = [*first, agent.status("-o", "json"), agent.run("doctor"), agent.cleanup()]
    return [(answer.exit_code, answer.text) for answer in answers]


@pytest.mark.parametrize("forked", [False, True])
def test_a_program_is_in_the_host_and_ends_by_a_signal_or_when_its_time_is_over(
    world: World, *, forked: bool
) -> None:
    node = world.node1
    program = node.popen(_STAYS, log="stays", forked=forked)
    node.await_port(9999, program)
    assert Path(f"/proc/{program.pid}/ns/pid").readlink() == Path(f"/proc/{node.pid}/ns/pid").readlink()
    assert program.stop(signal.SIGKILL) == -signal.SIGKILL
    assert not program.running
    with pytest.raises(WorldError, match=r"took longer than 0\.5 s"):
        node.run(_STAYS, timeout=0.5, forked=forked)
    assert living_processes(node, Path(sys.executable).name) == []
