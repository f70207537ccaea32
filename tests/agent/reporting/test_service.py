"""Where the pages are served: one TCP address, a unix socket, and two agents that want the same."""

import errno
import logging
import socket
import stat
import subprocess
import sys
import time
from ipaddress import ip_address
from pathlib import Path

import pytest

from nodeagent.agent.reporting.probe import NoAgentError, ask
from nodeagent.agent.reporting.service import TelemetryError, TelemetryServer, listen_unix
from nodeagent.agent.reporting.socket_path import own_socket, remove_stale
from nodeagent.config.option_types import ListenAddress
from nodeagent.model.addresses import Endpoint
from tests.agent.reporting.serving import connect, get, page, serving, short_directory

OLD = {"/readyz": lambda: page("old\n")}
NEW = {"/readyz": lambda: page("new\n")}
WAITING = {"/readyz": lambda: page("not ready\n", 503)}


def test_the_option_says_where() -> None:
    """Both families, and nowhere."""
    assert ListenAddress.parse("127.0.0.1:9467").endpoint == Endpoint(ip_address("127.0.0.1"), 9467)
    assert ListenAddress.parse("[::1]:9467").endpoint == Endpoint(ip_address("::1"), 9467)
    assert ListenAddress.parse("[::]:1").endpoint == Endpoint(ip_address("::"), 1)
    assert ListenAddress.parse("").endpoint is None


def test_ipv6_is_served() -> None:
    """With brackets in the option, without in the kernel."""
    with serving(OLD, Endpoint(ip_address("::1"), 0)) as service:
        assert get(service.bound, "/readyz").body == "old\n"


def test_all_addresses_of_both_families_are_served_at_the_ipv6_wildcard() -> None:
    """What a person expects who writes [::]."""
    with serving(OLD, Endpoint(ip_address("::"), 0)) as service:
        assert service.bound is not None
        assert get(Endpoint(ip_address("127.0.0.1"), service.bound.port), "/readyz").body == "old\n"


def test_nowhere_is_nowhere() -> None:
    """Neither TCP nor unix: nothing is opened, nothing fails."""
    with serving(OLD, None) as service:
        assert service.bound is None
        assert service.socket_path is None


def test_after_a_restart_the_same_port_is_had_at_once() -> None:
    """Connections that just ended do not hinder it (SO_REUSEADDR)."""
    with serving(OLD) as service:
        endpoint = service.bound
        assert get(endpoint, "/readyz").body == "old\n"
    with serving(NEW, endpoint) as service:
        assert service.bound == endpoint
        assert get(endpoint, "/readyz").body == "new\n"


def test_a_newer_agent_waits_for_the_older_ones_port_and_takes_it(caplog: pytest.LogCaptureFixture) -> None:
    """Without blocking; until then every connection reaches the older one; one warning, not one a try."""
    caplog.set_level(logging.INFO)
    with serving(OLD) as older:
        endpoint = older.bound
        began = time.monotonic()
        with serving(NEW, endpoint) as newer:
            assert time.monotonic() - began < 0.5
            assert newer.bound is None
            assert {get(endpoint, "/readyz").body for _ in range(20)} == {"old\n"}
            time.sleep(0.1)

            older.close()
            deadline = time.monotonic() + 5
            while len(caplog.records) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert get(endpoint, "/readyz").body == "new\n"

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    fields = {"address": str(endpoint), "err": "Address already in use"}
    assert caplog.records[0].__dict__["fields"] == fields
    assert "telemetry.listen" in caplog.messages[0]


def test_an_agent_that_still_waits_for_the_port_can_end() -> None:
    """And never takes it afterwards."""
    with serving(OLD) as older:
        endpoint = older.bound
        with serving(NEW, endpoint):
            pass
    time.sleep(0.1)
    with pytest.raises(ConnectionRefusedError):
        connect(endpoint)


def test_an_address_that_can_never_be_had_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the address and the option; nothing is left open."""

    def forbidden(endpoint: Endpoint) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied", str(endpoint))

    monkeypatch.setattr("nodeagent.agent.reporting.service.listen_tcp", forbidden)
    with short_directory() as run_dir:
        service = TelemetryServer(OLD, Endpoint(ip_address("127.0.0.1"), 80), run_dir)
        with pytest.raises(TelemetryError, match=r"127\.0\.0\.1:80: Permission denied: .*telemetry\.listen"):
            service.start()
        assert list(run_dir.iterdir()) == []


def test_two_agents_of_one_run_directory_each_have_a_socket_of_their_own() -> None:
    """A probe asks the agent in its own pid namespace, whichever agent has the port."""
    with short_directory() as run_dir, serving(WAITING, None, run_dir) as service:
        assert service.socket_path is not None
        assert stat.S_IMODE(Path(service.socket_path).stat().st_mode) == 0o600
        assert ask(str(run_dir), "/readyz") == (503, "not ready\n")
        foreign = run_dir / "agent-4026531836000-1.http"
        with listen_unix(str(foreign)):
            assert ask(str(run_dir), "/readyz") == (503, "not ready\n")


def test_closing_leaves_no_socket() -> None:
    """No trace in the run directory, so that it can be removed."""
    with short_directory() as run_dir:
        with serving(OLD, None, run_dir / "made"):
            assert len(list((run_dir / "made").iterdir())) == 1
        assert list((run_dir / "made").iterdir()) == []
        with pytest.raises(NoAgentError, match="no agent of this container answers"):
            ask(str(run_dir / "made"), "/readyz")


def test_what_a_crash_left_is_replaced_and_swept_and_the_living_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of agents in removed containers; a socket made just now may be about to listen."""
    monkeypatch.setattr("nodeagent.agent.reporting.socket_path._FRESH_SECONDS", 0.0)
    with short_directory() as run_dir:
        crashed = run_dir / "agent-1-1.http"
        living = run_dir / "agent-2-1.http"
        for path in (crashed, Path(own_socket(str(run_dir)))):
            listen_unix(str(path)).close()
        user_file = run_dir / "haproxy.cfg"
        user_file.touch()
        with listen_unix(str(living)), serving(NEW, None, run_dir):
            assert ask(str(run_dir), "/readyz") == (200, "new\n")
            assert living.exists()
            assert user_file.exists()
            assert not crashed.exists()

        monkeypatch.setattr("nodeagent.agent.reporting.socket_path._FRESH_SECONDS", 10.0)
        listen_unix(str(crashed)).close()
        remove_stale(str(run_dir))
        assert crashed.exists()


def test_a_run_directory_whose_path_is_too_long_for_a_socket_is_a_clear_error(tmp_path: Path) -> None:
    """The kernel takes 107 bytes."""
    with pytest.raises(TelemetryError, match=r"no socket for health and metrics in .*too long"):
        TelemetryServer(OLD, None, tmp_path / ("x" * 100)).start()


def test_the_probe_program_prints_the_page_and_exits_by_it() -> None:
    """As an exec probe runs it, in a process of its own."""

    def probe(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "nodeagent.agent.reporting.probe", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)

    with short_directory() as run_dir:
        with serving(OLD, None, run_dir):
            good = probe(str(run_dir), "/readyz")
            assert (good.returncode, good.stdout, good.stderr) == (0, "old\n", "")
            assert probe(str(run_dir), "/elsewhere").returncode == 1
        absent = probe(str(run_dir), "/readyz")
        assert (absent.returncode, absent.stdout) == (1, "")
        assert "no agent of this container answers" in absent.stderr
        assert probe().stderr.startswith("usage: ")


def test_the_probe_imports_next_to_nothing() -> None:
    """It runs every few seconds on every node."""
    program = (
        "import sys; before = set(sys.modules); import nodeagent.agent.reporting.probe\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    found = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    heavy = {"click", "msgspec", "yaml", "http", "email", "logging", "pathlib", "json", "prometheus_client"}
    assert not heavy & set(found.stdout.split())
