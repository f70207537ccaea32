"""The status file: what it says, to the startup probe and as a document, and that nothing depends on it."""

import json
import logging
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from nodeagent.agent import status_file
from nodeagent.agent.status_file import IN_POD, StatusFile, remove_status, status_path
from nodeagent.model.desired import Desired, LoadBalancerDecision, served, skipped
from nodeagent.observe.status import Role, Status, parse_status
from tests.agent.happening import BLUE, GREEN
from tests.daemonset.deployment import pod_template
from tests.daemonset.manifests import containers
from tests.testbed.waiting import wait_until

COMPONENTS = ("api", "hosts")
_SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "agent-status-v1.json"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes().splitlines()[1])
    return found


def _writer(*, stuck: bool = False) -> Status:
    now = iter([-1e9]) if stuck else iter(())
    board = Status(COMPONENTS, lambda: next(now, time.monotonic()))
    board.became(Role.WRITER)
    return board


def _passes(path: Path) -> bool:
    """Whether the startup probe of the agent's container succeeds, with the manifest's own command."""
    agent = containers(pod_template()["spec"])["agent"]
    command = [word.replace(str(IN_POD), str(path)) for word in agent["startupProbe"]["exec"]["command"]]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def _ago(seconds: float) -> Callable[[], float]:
    return lambda: time.clock_gettime(time.CLOCK_BOOTTIME) - seconds


def test_it_says_how_the_node_is(tmp_path: Path) -> None:
    path = tmp_path / "made" / "agent"
    board = _writer()
    file = StatusFile(path, "node1", board)
    board.desired = Desired(
        load_balancers=(
            LoadBalancerDecision(BLUE, served("Listed", "listed")),
            LoadBalancerDecision(GREEN, skipped("NotProxy", "nothing says so")),
        )
    )
    board.conflicts = frozenset({"hosts"})
    board.report("api", None)
    board.report("hosts", "first line\n\x1b[31msecond")
    board.synced_at = time.monotonic() - 7
    file.write()
    document = _read(path)
    Draft202012Validator(json.loads(_SCHEMA.read_text("utf-8"))).validate(document)
    assert document["node"] == "node1"
    assert document["role"] == "writer"
    assert document["conflicts"] == ["hosts"]
    assert document["components"]["api"] == {"state": "ok"}
    assert document["components"]["hosts"]["reason"] == "first line; \\x1b[31msecond"
    assert document["loadBalancers"] == {"served": 1, "skipped": 1, "refused": 0}
    assert document["names"]["served"] == 0
    assert 7 <= document["lastSyncSeconds"] < 60
    assert abs(document["writtenAt"] - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60
    assert parse_status(path.read_bytes()).role is Role.WRITER
    file.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "document", [b"", b"{", b"\xff", b'{"schemaVersion": "7"}', b'{"schemaVersion": "1"}', 9999 * b"["]
)
def test_what_is_no_status_file_is_an_error(document: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, RecursionError)):
        parse_status(b"1 alive ready\n" + document)


def test_an_agent_passes_the_startup_probe_once_it_is_ready_or_on_standby(tmp_path: Path) -> None:
    path, board = tmp_path / "agent", _writer()
    file = StatusFile(path, "node1", board)
    assert not _passes(path)
    file.write()
    assert not _passes(path)
    board.synced()
    file.write()
    assert _passes(path)
    file.close()
    assert not _passes(path)
    standby = Status(COMPONENTS)
    standby.became(Role.STANDBY, "another agent writes")
    StatusFile(path, "node1", standby).write()
    assert _passes(path)


def test_a_loop_that_hangs_and_an_agent_that_is_silent_do_not_pass(tmp_path: Path) -> None:
    path, stuck, well = tmp_path / "agent", _writer(stuck=True), _writer()
    for board in (stuck, well):
        board.synced()
    StatusFile(path, "node1", stuck).write()
    assert not _passes(path)
    StatusFile(path, "node1", well, _ago(10)).write()
    assert _passes(path)
    StatusFile(path, "node1", well, _ago(20)).write()
    assert not _passes(path)


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ValueError("nobody thought of it")]
)
def test_that_it_can_not_be_written_is_logged_once_and_the_agent_shows_that_it_lives(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs = []
    failing = True

    def replace_file(path: Path, content: bytes, **_: object) -> None:
        if failing:
            raise error
        path.write_bytes(content)

    monkeypatch.setattr(status_file, "_SECONDS_UNREADY", 0.01)
    monkeypatch.setattr(status_file, "replace_file", replace_file)
    monkeypatch.setattr(status_file, "heartbeat", lambda: signs.append(1))
    file = StatusFile(tmp_path / "agent", "node1", _writer())
    with caplog.at_level(logging.WARNING):
        file.start()
        wait_until(lambda: len(signs) > 5, "signs of life")
        failing = False
        wait_until((tmp_path / "agent").exists, "the file, later")
        file.close()
    assert [record.message for record in caplog.records] == ["Could not write the status file"]


def test_a_stuck_agent_does_not_show_that_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signs = []
    monkeypatch.setattr(status_file, "heartbeat", lambda: signs.append(1))
    file = StatusFile(tmp_path / "agent", "node1", _writer(stuck=True))
    file.start()
    wait_until((tmp_path / "agent").exists, "the file")
    file.close()
    assert signs == []


def test_what_a_killed_agent_left_is_removed(tmp_path: Path) -> None:
    StatusFile(status_path(tmp_path), "node1", _writer()).write()
    for _ in range(2):
        remove_status(status_path(tmp_path))
        assert list(tmp_path.iterdir()) == []
