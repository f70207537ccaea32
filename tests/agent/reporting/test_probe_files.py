"""The files that the DaemonSet's probes read, read by the manifest's own commands."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from nodeagent.agent.reporting.health import BeatLimits, HealthBoard
from nodeagent.agent.reporting.probe_files import ProbeFiles, read_uptime
from tests.daemonset.deployment import pod_template
from tests.daemonset.manifests import containers
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def passing(directory: Path) -> set[str]:
    """Which probes of the agent's container succeed."""
    agent = containers(pod_template()["spec"])["agent"]
    found = set()
    for kind in PROBES:
        command = [
            word.replace("/run/nodeagent-probe", str(directory)) for word in agent[kind]["exec"]["command"]
        ]
        if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0:
            found.add(kind)
    return found


def board(**limits: float) -> HealthBoard:
    """A board of an agent that writes."""
    made = HealthBoard(["relay"], BeatLimits(**limits))
    made.became_writer()
    return made


def test_an_agent_that_is_ready_passes_all_probes(tmp_path: Path) -> None:
    health = board()
    files = ProbeFiles(tmp_path, health, None)
    assert passing(tmp_path) == set()
    files.write()
    assert passing(tmp_path) == {"livenessProbe"}
    health.synced()
    files.write()
    assert passing(tmp_path) == {*PROBES}
    files.close()
    assert passing(tmp_path) == set()


def test_an_agent_that_finds_no_api_server_is_started_after_a_while_and_not_ready(tmp_path: Path) -> None:
    now = read_uptime() - 40
    files = ProbeFiles(tmp_path, board(), None, lambda: now)
    now += 39
    files.write()
    assert passing(tmp_path) == {"livenessProbe"}
    now += 1
    files.write()
    assert passing(tmp_path) == {"startupProbe", "livenessProbe"}


def test_a_loop_that_hangs_and_an_agent_that_is_silent_are_not_alive(tmp_path: Path) -> None:
    health = board(idle=-1.0)
    health.synced()
    ProbeFiles(tmp_path, health, None).write()
    assert passing(tmp_path) == {"readinessProbe"}
    health = board()
    health.synced()
    ProbeFiles(tmp_path, health, None, lambda: read_uptime() - 11).write()
    assert passing(tmp_path) == {*PROBES}
    ProbeFiles(tmp_path, health, None, lambda: read_uptime() - 20).write()
    assert passing(tmp_path) == set()


def test_when_haproxy_answered_last_is_written(tmp_path: Path) -> None:
    moments = [(1003, True, "1003 1003"), (1006, False, "1006 1003"), (1009, True, "1009 1009")]
    moment = (1000, True, "")
    files = ProbeFiles(tmp_path, board(), lambda: moment[1], lambda: moment[0])
    for moment in moments:
        files.write()
        assert (tmp_path / "relay").read_text(encoding="ascii") == f"{moment[2]}\n"


def test_it_goes_on_in_a_thread_also_after_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "later"
    files = ProbeFiles(directory, board(), None)
    files.start()
    wait_until(lambda: "Could not write the files for the probes" in caplog.text, "the failure")
    directory.mkdir()
    wait_until((directory / "agent").exists, "the next try", seconds=10)
    files.close()
    files.close()
    assert not (directory / "agent").exists()
