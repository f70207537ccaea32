"""What the fork server starts does not differ from a real start."""

import json
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.agent import Agent
from tests.testbed.errors import WorldError
from tests.testbed.fixtures import needs_root
from tests.testbed.forked import PYTHON
from tests.testbed.namespaces import Host
from tests.testbed.node_state import living_processes, read_state
from tests.testbed.processes import Process
from tests.testbed.waiting import wait_until
from tests.testbed.world import World

pytestmark = needs_root

_PROGRAM = (*PYTHON, "tests.testbed.starting")
_NAME = Path(sys.executable).name
_VARIABLES = {"PYTHONPATH": str(Path(__file__).parents[2]), "NODEAGENT_CONFIG": "/ä"}


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    with World() as standing:
        yield standing


@pytest.fixture
def node(world: World) -> Host:
    return world.node1


def test_a_program_begins_as_it_does_without_the_server(node: Host) -> None:
    real, forked = (
        json.loads(node.run(_PROGRAM, env=_VARIABLES, forked=forked).stdout) for forked in (False, True)
    )
    assert forked == real
    assert len(forked["descriptors"]) == 4, "0 to 2, and that of the directory itself"


def test_signals_reach_it_and_its_end_is_known(node: Host) -> None:
    for forked in (True, False):
        program = _staying(node, forked=forked)
        assert Path(f"/proc/{program.pid}/ns/pid").readlink() == Path(f"/proc/{node.pid}/ns/pid").readlink()
        program.signal(signal.SIGUSR1)
        assert program.wait() == 7
        assert not program.running
        assert _staying(node, forked=forked).stop() == -signal.SIGTERM
        assert _staying(node, forked=forked).stop(signal.SIGKILL) == -signal.SIGKILL


def test_a_program_that_takes_too_long_is_killed(node: Host) -> None:
    with pytest.raises(WorldError, match=r"took longer than 0\.5 s"):
        node.run([*_PROGRAM, "stay"], env=_VARIABLES, timeout=0.5, forked=True)
    assert living_processes(node, _NAME) == []
    program = _staying(node)
    assert program.wait(seconds=0.1) == -signal.SIGKILL
    assert living_processes(node, _NAME) == []


def test_what_the_server_can_not_start_so_is_refused(node: Host) -> None:
    with pytest.raises(WorldError, match="can't start this"):
        node.run(_PROGRAM, env=_VARIABLES | {"PYTHONHASHSEED": "1"}, forked=True)
    with pytest.raises(WorldError, match="can't start this"):
        node.run(["true"], env=_VARIABLES, forked=True)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    try:
        with pytest.raises(WorldError, match="can't start this"):
            node.run(_PROGRAM, env=_VARIABLES, forked=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


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


def _staying(node: Host, *, forked: bool = True) -> Process:
    program = node.popen([*_PROGRAM, "stay"], log="staying", env=_VARIABLES, forked=forked)
    wait_until(lambda: program.log.read_text("utf-8").endswith("stays\n"), "the program having started")
    program.log.write_text("", encoding="utf-8")
    return program
