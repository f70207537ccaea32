"""One agent of a node writes: the newest living one; and a command only if no agent does."""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from nodeagent.agent.writer_election import NodeLock, WriterElection, exclusive
from nodeagent.errors import ApplyError
from tests.agent import writing_agent
from tests.isolation import isolated, mount
from tests.root import needs_root
from tests.testbed.forked import FORKING
from tests.testbed.waiting import wait_until

Starting = Callable[[], WriterElection]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def start(run_dir: Path) -> Starting:
    """Start an agent's part in the election."""

    def begin() -> WriterElection:
        election = WriterElection(run_dir)
        election.start()
        return election

    return begin


def test_the_newer_one_gets_the_lock_when_the_older_ones_pass_is_over(start: Starting) -> None:
    older = start()
    assert older.is_writer()
    newer = start()
    assert not newer.is_writer()  # the older one is at a pass
    assert newer.standby_reason == ""  # not on standby: that would make its pod ready before it serves
    assert not older.is_writer()
    assert older.standby_reason == "another agent writes on this node"
    assert newer.is_writer()
    assert not older.is_writer()


def test_one_that_does_not_release_the_lock_is_ended_once_the_newer_one_is_on_standby(
    start: Starting, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout waits until the newer one is ready: it would wait forever."""
    with exclusive(run_dir, 1.0):
        newer = start()
        assert not newer.is_writer()
        assert newer.standby_reason == ""
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 16)
        assert not newer.is_writer()
        assert newer.standby_reason == "another process does not release the node lock"
    assert newer.is_writer()
    assert newer.standby_reason == ""


def test_the_older_ones_come_back_when_the_newer_ones_end(start: Starting, run_dir: Path) -> None:
    first, second, third = start(), start(), start()
    assert [first.is_writer(), second.is_writer(), third.is_writer()] == [False, False, True]
    third.stop()
    assert second.is_writer()
    assert not first.is_writer()
    newer = start()
    assert not second.is_writer()
    assert newer.is_writer()
    newer.stop()
    second.stop()
    assert first.is_writer()
    for _ in range(2):
        first.stop()
        assert not first.is_writer()
        assert not run_dir.exists()


@pytest.mark.parametrize("turn", [True, False], ids=["its turn came", "it ends before"])
def test_the_last_to_end_leaves_nothing(start: Starting, run_dir: Path, *, turn: bool) -> None:
    """The writer that ended just before saw another agent, and left the run directory to it."""
    older, newer = start(), start()
    assert not turn or newer.is_writer()
    older.stop()
    assert not turn or newer.is_writer()
    newer.stop()
    assert not run_dir.exists()


def test_the_files_of_others_in_the_run_directory_stay(start: Starting, run_dir: Path) -> None:
    run_dir.mkdir()
    (run_dir / "haproxy.cfg").write_text("# HAProxy's")
    (run_dir / "claim.0123456789abcdef").touch()  # one that was killed left it
    agent = start()
    assert agent.is_writer()
    agent.stop()
    assert sorted(os.listdir(run_dir)) == ["haproxy.cfg", "lock"]  # noqa: PTH208 - names are wanted


def test_an_emptied_run_directory_is_used_again(start: Starting, run_dir: Path) -> None:
    agent = start()
    assert agent.is_writer()
    shutil.rmtree(run_dir)
    assert agent.is_writer()
    newer = start()
    assert not agent.is_writer()
    assert newer.is_writer()
    agent.stop()
    newer.stop()
    assert not run_dir.exists()


def test_a_run_directory_that_cant_be_used_is_reported_once(
    start: Starting, run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = start()
    shutil.rmtree(run_dir)
    run_dir.write_text("not a directory")
    assert not agent.is_writer()
    assert not agent.is_writer()
    (record,) = caplog.records
    assert record.message == "Could not determine which agent writes"
    run_dir.unlink()
    assert agent.is_writer()
    with pytest.raises(ApplyError, match="could not claim the node there; nothing was changed"):
        WriterElection(run_dir / "lock").start()


@isolated
def test_a_full_file_system_gets_its_writer_all_the_same(tmp_path: Path) -> None:
    mount("tmpfs", tmp_path, "tmpfs", options="size=16k")
    with pytest.raises(OSError, match="No space left"):
        (tmp_path / "filler").write_bytes(b"x" * 65536)
    election = WriterElection(tmp_path / "run")
    election.start()
    assert election.is_writer()
    with pytest.raises(ApplyError, match="process unknown holds the node lock"):
        exclusive(tmp_path / "run", 0.1).__enter__()
    election.stop()
    assert not (tmp_path / "run").exists()


def test_an_agent_waits_for_apply_to_end_and_apply_for_an_agent(start: Starting, run_dir: Path) -> None:
    with exclusive(run_dir, 1.0):
        agent = start()
        assert not agent.is_writer()
    assert agent.is_writer()
    with pytest.raises(ApplyError, match=f"process {os.getpid()} holds the node lock"):
        exclusive(run_dir, 0.1).__enter__()
    agent.stop()
    with exclusive(run_dir, 0.1):
        pass
    assert not run_dir.exists()


def test_a_lock_whose_file_was_removed_by_its_last_owner_is_not_held(run_dir: Path) -> None:
    first, second = NodeLock(run_dir), NodeLock(run_dir)
    assert first.try_acquire()
    (run_dir / "lock").unlink()
    assert second.try_acquire()
    assert not first.try_acquire()


class Node:
    """A run directory, and agents on it as processes of their own."""

    def __init__(self, run_dir: Path, log: Path) -> None:
        self.run_dir, self._log = run_dir, log
        self.agents: list[BaseProcess] = []

    def agent(self) -> BaseProcess:
        """Start one more."""
        process = FORKING.Process(target=writing_agent.write, args=(self.run_dir, self._log), daemon=True)
        process.start()
        self.agents.append(process)
        return process

    def log(self) -> list[str]:
        """Who began (+) and ended (-) passes."""
        return self._log.read_text().split()

    def wait_for_writer(self, pid: int | None) -> None:
        """Return when this process writes."""
        wait_until(lambda: self.log()[-1:] == [f"-{pid}"], f"process {pid} to write", seconds=10)

    def wait_for_passes(self) -> None:
        """Return when one more pass was made, by whichever agent."""
        before = len(self.log())
        wait_until(lambda: len(self.log()) > before + 1, "somebody to write", seconds=10)


@pytest.fixture
def node(run_dir: Path, tmp_path: Path) -> Iterator[Node]:
    """Its agents wrote one after the other: between a begin and its end, no other pass began."""
    (tmp_path / "log").touch()
    made = Node(run_dir, tmp_path / "log")
    yield made
    for agent in made.agents:
        agent.kill()
        agent.join()
    log = made.log()
    assert [line for before, line in pairwise(log) if line[0] == "-" and before[1:] != line[1:]] == []


def test_a_storm_of_kills_never_leaves_the_node_without_its_one_writer(
    node: Node,
    soak: bool,  # noqa: FBT001 - a fixture
) -> None:
    chance = random.Random(3)  # noqa: S311 - the same victims each time
    living = [node.agent() for _ in range(3)]
    for _ in range(100 if soak else 15):
        node.wait_for_passes()
        victim = living.pop(chance.randrange(3))
        victim.kill()
        victim.join()
        node.wait_for_passes()
        living.append(node.agent())
    for agent in living:
        agent.terminate()
    for agent in living:
        agent.join(10)
    last = node.agent()
    node.wait_for_writer(last.pid)
    last.terminate()
    last.join(10)
    assert last.exitcode == 0
    assert not node.run_dir.exists()


@needs_root
def test_agents_in_different_pid_namespaces_find_each_other(node: Node, tmp_path: Path) -> None:
    first = node.agent()
    node.wait_for_writer(first.pid)
    apart = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")
    program = (sys.executable, "-m", writing_agent.__name__, str(node.run_dir), str(tmp_path / "log"))
    with subprocess.Popen([*apart, *program]) as second:
        node.wait_for_writer(1)
        with pytest.raises(ApplyError, match=r"process 1 holds the node lock.*in a container"):
            exclusive(node.run_dir, 0.1).__enter__()
        second.kill()
    node.wait_for_writer(first.pid)
