"""A watch that is not available is tried again, and reported everywhere: with the kernel's own limits."""

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.agent.drift.addresses import AddressWatcher
from nodeagent.agent.drift.dnat import NftablesWatcher
from nodeagent.agent.drift.hosts_file import HostsFileWatcher
from nodeagent.agent.drift.relay import RelayWatcher
from nodeagent.agent.drift.watcher import Watcher, WatcherState
from nodeagent.agent.metrics import AgentMetrics
from nodeagent.agent.watch_status import WatcherHealth
from nodeagent.components.addresses.component import Addresses
from nodeagent.config.options import Config
from nodeagent.runtime.health import DRIFT, HealthBoard
from tests.agent.drift.recorder import Recorder
from tests.root import needs_root

_ROOT = Path(__file__).parents[2]
_WITHOUT_INOTIFY = """
import sys
from pathlib import Path
from nodeagent.agent.drift.hosts_file import HostsFileWatcher

Path("/proc/sys/user/max_inotify_instances").write_text("0")
watcher = HostsFileWatcher(Path(sys.argv[1]), print)
watcher.start()
print(watcher.state().running, watcher.state().error)
"""


@contextmanager
def _no_descriptors() -> Iterator[None]:
    """No further file can be opened in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first_free = os.dup(0)
    os.close(first_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@needs_root
def test_without_descriptors_nothing_is_watched_and_it_begins_when_there_are_some(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(b"127.0.0.1 localhost\n")
    relay, said = Config().relay, Recorder()
    ranges = (relay.ipv4, relay.ipv6)
    watchers: list[Watcher[Any, Any]] = [
        HostsFileWatcher(tmp_path / "hosts", said),
        AddressWatcher(Addresses(relay.interface, ranges), relay.interface, ranges, said),
        NftablesWatcher(said),
        RelayWatcher(tmp_path / "master.sock", said),
    ]
    with _no_descriptors():
        for watcher in watchers:
            watcher.start()
    try:
        for watcher in watchers:
            assert watcher.state() == WatcherState(
                watcher.component, running=False, error="Too many open files"
            )
        for watcher in watchers:
            watcher.start()
        assert [watcher.state().running for watcher in watchers] == [True] * 4
    finally:
        for watcher in watchers:
            watcher.stop()


@needs_root
def test_exhausted_inotify_instances_are_reported(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_bytes(b"127.0.0.1 localhost\n")
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", _WITHOUT_INOTIFY, str(hosts)]
    out = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    assert out.startswith("False ")
    assert "inotify instance limit" in out or "Too many open files" in out


def test_it_is_reported_everywhere_and_does_not_make_the_agent_unready(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "nodeagent")
    metrics, board = AgentMetrics(), HealthBoard([DRIFT])
    board.became_writer()
    board.synced()
    noticing = WatcherHealth(metrics, board)
    bad = WatcherState("hosts", running=False, error="Too many open files")
    noticing.update([bad, WatcherState("dnat", running=True)], ["relay: master.sock: it does not answer"])
    noticing.update([bad, WatcherState("dnat", running=True)], ["relay: master.sock: it does not answer"])
    assert board.ready().ok
    assert (
        "drift: failed since 0 s: hosts is not watched: Too many open files; relay: mas" in board.ready().text
    )
    text = metrics.exposition().decode()
    assert 'nodeagent_drift_unnoticed{component="hosts"} 1.0' in text
    assert 'nodeagent_drift_unnoticed{component="dnat"} 0.0' in text
    assert "nodeagent_relay_notes 1.0" in text
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    noticing.update([WatcherState("hosts", running=True)])
    assert "drift: ok" in board.ready().text
    assert 'nodeagent_drift_unnoticed{component="hosts"} 0.0' in metrics.exposition().decode()
    assert caplog.records[-1].getMessage() == "Resumed watching a component"
