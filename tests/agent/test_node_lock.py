"""One process writes on a node: an agent, or a command if no agent runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.agent.node_lock import NodeLock, exclusive
from nodeagent.errors import ApplyError
from tests.isolation import isolated, mount
from tests.root import needs_root
from tests.testbed.forked import FORKING
from tests.testbed.waiting import wait_until


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_the_second_one_waits_and_names_the_first(run_dir: Path) -> None:
    first, second = NodeLock(run_dir), NodeLock(run_dir)
    assert first.try_acquire()
    assert not second.try_acquire()
    assert second.owner == str(os.getpid())
    first.release()
    assert second.try_acquire()
    assert not first.try_acquire()
    second.leave()
    for _ in range(2):
        first.leave()
        assert not run_dir.exists()


def test_an_agent_waits_for_apply_to_end_and_apply_for_an_agent(run_dir: Path) -> None:
    agent = NodeLock(run_dir)
    with exclusive(run_dir, 1.0):
        assert not agent.try_acquire()
    assert agent.try_acquire()
    with pytest.raises(ApplyError, match=f"process {os.getpid()} holds the node lock"):
        exclusive(run_dir, 0.1).__enter__()
    agent.leave()
    with exclusive(run_dir, 0.1):
        pass
    assert not run_dir.exists()


@pytest.mark.parametrize(
    ("of_others", "left"), [("haproxy.cfg", ["haproxy.cfg", "lock"]), ("relay", ["relay"])]
)
def test_the_files_of_others_in_the_run_directory_stay(
    run_dir: Path, of_others: str, left: list[str]
) -> None:
    """So does the lock beside them, except beside a relay pod's."""
    (run_dir / of_others).mkdir(parents=True)
    with exclusive(run_dir, 1.0):
        pass
    assert sorted(os.listdir(run_dir)) == left  # noqa: PTH208 - names are wanted


def test_a_run_directory_that_cant_be_used_says_so(run_dir: Path) -> None:
    run_dir.write_text("not a directory")
    with pytest.raises(ApplyError, match="could not take the node lock there; nothing was changed"):
        NodeLock(run_dir).try_acquire()


@isolated
def test_a_full_file_system_gets_its_writer_all_the_same(tmp_path: Path) -> None:
    mount("tmpfs", tmp_path, "tmpfs", options="size=16k")
    with pytest.raises(OSError, match="No space left"):
        (tmp_path / "filler").write_bytes(b"x" * 65536)
    lock = NodeLock(tmp_path / "run")
    assert lock.try_acquire()
    with pytest.raises(ApplyError, match="process unknown holds the node lock"):
        exclusive(tmp_path / "run", 0.1).__enter__()
    lock.leave()
    assert not (tmp_path / "run").exists()


def _hold(run_dir: Path) -> None:
    lock = NodeLock(run_dir)
    wait_until(lock.try_acquire, "the lock", seconds=10)
    (run_dir / "held").write_text(str(os.getpid()))
    wait_until(lambda: False, "being killed", seconds=60)


def test_the_kernel_frees_it_with_its_process_however_that_ends(run_dir: Path) -> None:
    for _ in range(5):
        process = FORKING.Process(target=_hold, args=(run_dir,), daemon=True)
        process.start()
        held = run_dir / "held"
        wait_until(lambda: held.exists() and held.read_text() == str(process.pid), "it", seconds=10)  # noqa: B023
        assert not NodeLock(run_dir).try_acquire()
        process.kill()
        process.join()
        lock = NodeLock(run_dir)
        assert lock.try_acquire()
        lock.release()


@needs_root
def test_one_in_another_pid_namespace_counts(run_dir: Path) -> None:
    code = (
        "import pathlib, sys; from nodeagent.agent.node_lock import NodeLock\n"
        "lock = NodeLock(pathlib.Path(sys.argv[1])); print(lock.try_acquire(), flush=True); input()"
    )
    apart = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")
    command = [*apart, sys.executable, "-c", code, str(run_dir)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"True\n"
        with pytest.raises(ApplyError, match=r"process 1 holds the node lock.*in a container"):
            exclusive(run_dir, 0.1).__enter__()
        other.kill()
    wait_until(NodeLock(run_dir).try_acquire, "the lock being free", seconds=10)
