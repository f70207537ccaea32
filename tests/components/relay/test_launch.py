import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.components.relay import activation, haproxy_config
from nodeagent.components.relay.run_directory import RelayWatch
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Desired, Listener
from tests.components.converging import seen, watching
from tests.components.relay.backend import backend, echo, echoes, ended, who
from tests.components.relay.node import CONFIG, RELAY, RUN, A, B, C, KeptRelay, isolated, listener
from tests.testbed.processes import alive
from tests.testbed.waiting import wait_until


@isolated
def test_start_stop_and_cleanup_leave_no_process_and_no_file(relays: KeptRelay) -> None:
    assert not relays.difference([])
    assert relays.difference([A]).text == (
        "+ listen 169.254.66.5:443 -> 10.96.0.10:443 PROXY v1 "
        "(Service ingress-nginx/ingress-nginx-controller)\nstart HAProxy: no HAProxy answers"
    )
    relays.serve([A])
    state = relays.read()
    assert state.haproxies[0].current
    assert state.listeners == (A,)
    assert not state.notes
    assert CONFIG.stat().st_mode & 0o7777 == 0o600
    assert RUN.stat().st_mode & 0o7777 == 0o700
    assert all(os.getsid(pid) != os.getsid(0) for pid in alive("haproxy"))
    _assert_nothing_to_do(relays, A)
    removed, added, reload = relays.difference([replace(A, proxy="v2")]).text.splitlines()
    assert removed.startswith("- listen 169.254.66.5:443 -> 10.96.0.10:443 PROXY v1 ")
    assert added.startswith("+ listen 169.254.66.5:443 -> 10.96.0.10:443 PROXY v2 ")
    assert reload.startswith("reload HAProxy")
    relays.serve([])
    assert alive("haproxy") == []
    _assert_nothing_to_do(relays)
    relays.serve([A])
    relays.clean_up()
    assert alive("haproxy") == []
    assert not RUN.exists()
    relays.clean_up()


def _assert_nothing_to_do(relays: KeptRelay, *listeners: Listener) -> None:
    before = alive("haproxy")
    change = relays.difference(listeners)
    assert (bool(change), change.text) == (False, "")
    relays.serve(listeners)
    assert alive("haproxy") == before


@isolated
def test_a_haproxy_whose_run_directory_vanished_is_replaced_and_drained(relays: KeptRelay) -> None:
    with backend(A.server):
        relays.serve([A])
        old = alive("haproxy")
        with echo(A.bind) as connection:
            shutil.rmtree(RUN)
            relays.serve([A])
            assert echoes(connection)
            assert relays.state().current
        wait_until(lambda: not set(alive("haproxy")) & set(old), "the end of the old one", seconds=20)
        assert who(A.bind) == f"v1 {RELAY}"
    relays.clean_up()
    assert alive("haproxy") == []


@isolated
def test_a_haproxy_that_hangs_is_ended_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.components.relay.haproxy_sockets.ASK_SECONDS", 0.2)
    relays = KeptRelay(drain_seconds=0.1)
    relays.serve([A])
    hung = alive("haproxy")
    for pid in hung:
        os.kill(pid, signal.SIGSTOP)
    assert any("no answer in time" in note for note in relays.read().notes)
    assert relays.ready_of([A]) == frozenset(), "the kernel alone takes connections"
    relays.serve([A])
    assert relays.state().current
    assert not set(alive("haproxy")) & set(hung)


@isolated
def test_processes_and_files_of_others_are_not_touched(relays: KeptRelay) -> None:
    RUN.mkdir(mode=0o700)
    # A pid file of ours that has been recycled, a stranger that names our file, and another's HAProxy.
    stranger = subprocess.Popen(["sleep", "1000"])
    (RUN / "haproxy.pid").write_text(f"{stranger.pid}\n")
    (RUN / "state.json").write_text("{}")
    namesake = subprocess.Popen(["python3", "-c", "input()", "-f", str(CONFIG)], stdin=subprocess.PIPE)
    other = Path("/run/other.cfg")
    other.write_text(
        "defaults\n timeout connect 1s\n timeout client 1s\n timeout server 1s\nlisten a\n bind :81\n"
    )
    foreign = subprocess.Popen(["haproxy", "-f", str(other)], stderr=subprocess.DEVNULL)
    relays.serve([A])
    relays.clean_up()
    assert [each.poll() for each in (stranger, namesake, foreign)] == [None] * 3
    assert (RUN / "state.json").exists()


@isolated
def test_the_same_file_name_in_another_network_namespace_is_another_nodes_relay(relays: KeptRelay) -> None:
    relays.serve([A])
    text = CONFIG.read_text()
    CONFIG.write_text(text.replace("bind 169.254.66.5:443", "bind :444").replace("relay.sock", "other.sock"))
    command = ["unshare", "--net", "haproxy", "-C", str(RUN), "-f", str(CONFIG)]
    foreign = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until((RUN / "other.sock").exists, "its socket", seconds=20)
    CONFIG.write_text(text)
    assert foreign.pid not in activation.running(CONFIG)
    relays.clean_up()
    assert foreign.poll() is None


@isolated
def test_an_open_connection_is_cut_only_after_the_time_to_drain() -> None:
    relays = KeptRelay(drain_seconds=0.3)
    with backend(A.server):
        relays.serve([A])
        with echo(A.bind) as connection:
            relays.clean_up()
            assert alive("haproxy") == []
            assert ended(connection)


@pytest.mark.parametrize(
    ("address", "told", "written"),
    [
        ("169.254.66.99", r"did not start(?s:.*)169\.254\.66\.99:443", True),
        ("169.254.66.999", r"rejects the relay's configuration(?s:.*)169\.254\.66\.999", False),
    ],
)
@isolated
def test_a_start_that_fails_says_why_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, address: str, told: str, written: bool
) -> None:
    render = haproxy_config.render
    with monkeypatch.context() as wrong:
        wrong.setattr(haproxy_config, "render", lambda *what: render(*what).replace(RELAY, address))
        with pytest.raises(ApplyError, match=told):
            KeptRelay().serve([A])
    assert (alive("haproxy"), CONFIG.exists()) == ([], written)
    KeptRelay().serve([A])


@isolated
def test_a_run_directory_that_others_may_write_is_refused(relays: KeptRelay) -> None:
    RUN.mkdir()
    RUN.chmod(0o777)
    with pytest.raises(ApplyError, match=r"/run/nodeagent belongs to user 0 with mode 0777"):
        relays.serve([A])
    assert alive("haproxy") == []


@isolated
def test_ready_has_only_haproxys_listeners_in_both_families(relays: KeptRelay) -> None:
    absent = listener(port=9)
    many = [listener(port=port) for port in range(2000, 2300)]
    assert relays.ready_of([A, C, absent]) == frozenset()
    relays.serve([A, C, *many])
    expected = {each.bind for each in (A, C, *many)}
    assert relays.ready_of([A, C, absent, *many]) == expected
    # One of the same user that answers is not HAProxy's, and one of HAProxy's is for its load balancer alone.
    with socket.create_server((RELAY, 9)):
        assert relays.ready_of([absent]) == frozenset()
    assert relays.ready_of([replace(A, load_balancer=replace(A.load_balancer, name="other"))]) == frozenset()


def _stopped(watch: RelayWatch) -> None:
    """Wait until it says so. Before, one that is ending may have let it connect once more."""
    while (said := seen(watch)) != "HAProxy stopped":
        assert said == "HAProxy stopped, or was reloaded"


@pytest.mark.parametrize("victims", [("worker",), ("master",), ("master", "worker")])
@isolated
def test_its_end_and_its_return_are_seen(victims: tuple[str, ...]) -> None:
    relay = KeptRelay(drain_seconds=0.1)
    relay.serve([A])
    with closing(relay.watch()) as watch:
        found = KeptRelay.processes()
        pids = {"master": found.master, "worker": found.workers[0]}
        for victim in victims:
            os.kill(pids[victim], signal.SIGKILL)
        _stopped(watch)
        assert watch.drain() == ""
        relay.serve([A])
        assert watch.drain() == "HAProxy answers"
        activation.stop(CONFIG, 0.1)
        assert (watch.drain(), watch.seconds) == ("", 0.02), "it may be a reload"
        _stopped(watch)


@isolated
def test_own_starts_reloads_and_stops_are_not_noticed(relays: KeptRelay) -> None:
    with watching(relays) as cached:
        for listeners in ((A,), (A, B), (B,), (), (A,), (A, B)) * 2:
            for keep in (True, False):
                cached.apply(Desired(listeners=listeners), keep=keep)
                assert cached.notice() == ""
                assert cached.due_at() > time.monotonic() + 0.4, "nor awaited"
            assert not cached.diff(Desired(listeners=listeners))
        os.kill(KeptRelay.processes().master, signal.SIGKILL)
        wait_until(lambda: bool(cached.notice()), "its end being seen")
        assert cached.diff(Desired(listeners=(A, B))).text == "start HAProxy: no HAProxy answers"
