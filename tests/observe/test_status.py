import json
import logging
import time
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from nodeagent.model.decisions import LoadBalancerDecision, served, skipped
from nodeagent.model.desired import Desired
from nodeagent.observe import status
from nodeagent.observe.status import RelayStatus, Status, StatusFile, parse_status, remove_status, status_path
from tests.agent.happening import BLUE, GREEN
from tests.clock import Clock
from tests.testbed.waiting import wait_until

COMPONENTS = ("api", "hosts")
_SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "agent-status-v1.json"


def test_it_says_how_the_node_is(tmp_path: Path, flushed: list[Path]) -> None:
    path = tmp_path / "made" / "agent"
    shown = Status(COMPONENTS)
    file = StatusFile(path, "node1", shown)
    shown.desired = Desired(
        load_balancers=(
            LoadBalancerDecision(BLUE, served("Listed", "listed")),
            LoadBalancerDecision(GREEN, skipped("NotProxy", "nothing says so")),
        )
    )
    shown.relay = RelayStatus("nodeagent-relay-a", "3.0.11")
    shown.conflicts = frozenset({"hosts"})
    shown.report("api", None)
    shown.report("hosts", "first line\n\x1b[31msecond")
    shown.synced_at = time.monotonic() - 7
    file.write()
    assert flushed == [], "it is written each few seconds"
    document = json.loads(path.read_bytes())
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
    file = StatusFile(tmp_path / "agent", "node1", Status(COMPONENTS))
    with caplog.at_level(logging.WARNING):
        file.start()
        wait_until((tmp_path / "agent").exists, "the file, later")
        file.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_agent_left_is_removed(tmp_path: Path) -> None:
    StatusFile(status_path(tmp_path), "node1", Status(COMPONENTS)).write()
    for _ in range(2):
        remove_status(status_path(tmp_path))
        assert list(tmp_path.iterdir()) == []


def board(*components: str) -> tuple[Status, Clock]:
    clock = Clock()
    return Status(components, clock), clock


def test_alive_as_long_as_the_loop_gives_signs() -> None:
    """The bound is on the silence, not on the age of the agent: a component may wait for HAProxy."""
    health, clock = board()
    for _ in range(3):
        clock.now += 119
        assert " 119 s " in health.alive().text
        assert health.alive().ok
        health.heartbeat()
    clock.now += 121
    assert not health.alive().ok
    assert " 121 s " in health.alive().text
    health.heartbeat()
    assert health.alive().ok


def test_an_agent_is_ready_after_its_first_sync_and_stays_ready() -> None:
    health, clock = board("api", "hosts", "dnat")
    health.report("api", "connection refused")
    clock.now += 12
    assert not health.ready().ok
    failed = "api: failed since 12 s: connection refused"
    assert health.ready().text.splitlines()[1:] == [failed, "hosts: not yet", "dnat: not yet"]
    for component in ("api", "hosts", "dnat"):
        health.report(component, None)
    health.synced()
    assert health.ready().ok
    assert health.ready().text == "ready\napi: ok\nhosts: ok\ndnat: ok\n"
    health.report("dnat", "nft: Operation not permitted")
    assert health.ready().ok
    assert "dnat: failed since 0 s: nft: Operation not permitted\n" in health.ready().text


def test_the_time_of_a_failure_counts_from_the_first_in_a_row() -> None:
    health, clock = board("relay")
    health.report("relay", "no HAProxy answers")
    clock.now += 5
    health.report("relay", "still none")
    clock.now += 5
    assert "relay: failed since 10 s: still none\n" in health.ready().text
    health.report("relay", None)
    clock.now += 5
    health.report("relay", "gone again")
    assert "relay: failed since 0 s: gone again\n" in health.ready().text


def test_a_long_error_is_shown_up_to_its_bound() -> None:
    health, _ = board("relay")
    health.report("relay", "x" * 1001)
    assert health.components["relay"].reason == "x" * 1000


def test_an_error_can_not_forge_the_line_of_another_part() -> None:
    """Errors of many lines are shown on one, whatever characters they have."""
    health, _ = board("dnat", "hosts")
    health.report("dnat", "nft says:\n  bad\r\n\nhosts: ok\x1b[2J\u202e")
    health.waits_for = "evil\nhosts: ok"
    lines = health.ready().text.splitlines()
    assert lines == [
        "not ready: evil\\nhosts: ok",
        "dnat: failed since 0 s: nft says:; bad; hosts: ok\\x1b[2J\\u202e",
        "hosts: not yet",
    ]
