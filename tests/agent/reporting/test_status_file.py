"""The status document in the run directory: what it says, when it is written, when it is removed."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from nodeagent.agent.reporting.health import HealthBoard
from nodeagent.agent.reporting.name_counts import NameCounts
from nodeagent.agent.reporting.status_file import StatusFile, remove_status, status_path
from tests.plan.made_up import config, desired, ingress, service

COMPONENTS = ("api", "hosts")
_SCHEMA = Path(__file__).parents[3] / "docs" / "schema" / "agent-status-v1.json"


def _read(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(status_path(run_dir).read_bytes())
    return found


def _writer() -> HealthBoard:
    board = HealthBoard(COMPONENTS)
    board.became_writer()
    return board


def test_it_says_how_the_node_is(tmp_path: Path) -> None:
    board = _writer()
    file = StatusFile(tmp_path, "node1", board)
    planned = desired(
        service(),
        service("other", ips=["192.0.2.2"]),
        ingress("site.example.com"),
        options=config(proxies=["blue"]),
    )
    names = NameCounts()
    names.update((), planned.names)
    file.of_pass(planned, names, frozenset({"hosts"}))
    board.component_ok("api")
    board.component_failed("hosts", "first line\n\x1b[31msecond")
    board.synced()
    file.keep()
    document = _read(tmp_path)
    Draft202012Validator(json.loads(_SCHEMA.read_text("utf-8"))).validate(document)
    assert document["node"] == "node1"
    assert document["conflicts"] == ["hosts"]
    assert document["components"]["api"] == {"state": "ok"}
    assert document["components"]["hosts"]["reason"] == "first line; \\x1b[31msecond"
    assert document["loadBalancers"] == {"served": 1, "skipped": 1, "refused": 0}
    assert document["names"]["served"] == 1
    assert 0 <= document["lastSyncSeconds"] < 60
    assert abs(document["writtenAt"] - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60


def test_it_is_written_by_the_nodes_writer_alone(tmp_path: Path) -> None:
    board = HealthBoard(COMPONENTS)
    file = StatusFile(tmp_path, "node1", board)
    file.keep()
    board.became_standby("another agent writes")
    file.keep()
    assert list(tmp_path.iterdir()) == []
    board.became_writer()
    file.keep()
    assert _read(tmp_path)["lastSyncSeconds"] is None
    # The other one took over: its document is not for this one to remove.
    board.became_standby("a newer agent writes")
    file.remove()
    assert status_path(tmp_path).exists()
    board.became_writer()
    file.remove()
    assert list(tmp_path.iterdir()) == []
    remove_status(tmp_path)


def test_a_hundred_turns_of_the_loop_write_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    board = _writer()
    file = StatusFile(tmp_path, "node1", board)
    planned = desired(service())
    written = []
    for turn in range(100):
        now = 1000.0 + turn / 10
        file.of_pass(planned, NameCounts(), frozenset())
        status_path(tmp_path).unlink(missing_ok=True)
        file.keep()
        written += [turn] * status_path(tmp_path).exists()
    assert written == list(range(0, 100, 10))


def test_without_news_it_is_written_every_five_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    file = StatusFile(tmp_path, "node1", _writer())
    written = []
    for second in range(16):
        now = 1000.0 + second
        status_path(tmp_path).unlink(missing_ok=True)
        file.keep()
        written += [second] * status_path(tmp_path).exists()
    assert written == [0, 5, 10, 15]


def test_that_it_can_not_be_written_is_logged_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    (tmp_path / "status").write_text("a file, where the directory should be")
    file = StatusFile(tmp_path, "node1", _writer())
    with caplog.at_level(logging.WARNING):
        file.keep()
        now += 10
        file.keep()
    assert [record.message for record in caplog.records] == ["Could not write the status document"]
