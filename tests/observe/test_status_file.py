"""The status file: what it says, and that nothing depends on it."""

import json
import logging
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from nodeagent.model.desired import Desired, LoadBalancerDecision, served, skipped
from nodeagent.observe import status
from nodeagent.observe.status import RelayStatus, Status, StatusFile, parse_status, remove_status, status_path
from tests.agent.happening import BLUE, GREEN
from tests.testbed.waiting import wait_until

COMPONENTS = ("api", "hosts")
_SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "agent-status-v1.json"


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def _writer() -> Status:
    return Status(COMPONENTS)


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
    board.relay = RelayStatus("nodeagent-relay-a", "3.0.11")
    board.conflicts = frozenset({"hosts"})
    board.report("api", None)
    board.report("hosts", "first line\n\x1b[31msecond")
    board.synced_at = time.monotonic() - 7
    file.write()
    document = _read(path)
    Draft202012Validator(json.loads(_SCHEMA.read_text("utf-8"))).validate(document)
    assert document["node"] == "node1"
    assert document["conflicts"] == ["hosts"]
    assert document["components"]["api"] == {"state": "ok"}
    assert document["components"]["hosts"]["reason"] == "first line; \\x1b[31msecond"
    assert document["loadBalancers"] == {"served": 1, "skipped": 1, "refused": 0}
    assert document["names"]["served"] == 0
    assert 7 <= document["lastSyncSeconds"] < 60
    assert abs(document["writtenAt"] - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60
    assert document["relay"] == {"pod": "nodeagent-relay-a", "version": "3.0.11"}
    assert parse_status(path.read_bytes()).node == "node1"


@pytest.mark.parametrize(
    "document", [b"", b"{", b"\xff", b'{"schemaVersion": "7"}', b'{"schemaVersion": "1"}', 9999 * b"["]
)
def test_what_is_no_status_file_is_an_error(document: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, RecursionError)):
        parse_status(document)


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), ValueError("nobody thought of it")]
)
def test_that_it_can_not_be_written_is_logged_once_and_its_end_removes_it(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def replace_file(path: Path, content: bytes, **_: object) -> None:
        attempts.append(path)
        if len(attempts) < 5:
            raise error
        path.write_bytes(content)

    monkeypatch.setattr(status, "_FILE_SECONDS", 0.01)
    monkeypatch.setattr(status, "replace_file", replace_file)
    file = StatusFile(tmp_path / "agent", "node1", _writer())
    with caplog.at_level(logging.WARNING):
        file.start()
        wait_until((tmp_path / "agent").exists, "the file, later")
        file.close()
    assert [record.message for record in caplog.records] == ["Could not write the status file"]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_agent_left_is_removed(tmp_path: Path) -> None:
    StatusFile(status_path(tmp_path), "node1", _writer()).write()
    for _ in range(2):
        remove_status(status_path(tmp_path))
        assert list(tmp_path.iterdir()) == []
