"""Relay pods by their manifest: each has an HAProxy of its own, which the agent configures."""

import os
import shutil
import signal
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from nodeagent.components.relay.haproxy_sockets import Unreachable
from nodeagent.components.relay.run_directory import RunDirectory
from nodeagent.errors import ApplyError
from nodeagent.model.desired import HEALTH, Desired
from tests.components.relay.answering import Answer, answering, garbage, hangs
from tests.components.relay.backend import backend, echo, echoes, who
from tests.components.relay.node import PODS, RELAY, RELAY_2, RUN, A, B, KeptRelay, isolated, listener
from tests.daemonset.manifests import deployed, workload
from tests.testbed.processes import alive, children
from tests.testbed.squatter import squatter
from tests.testbed.waiting import wait_until


def pod_directory(uid: str) -> RunDirectory:
    return RunDirectory(RUN / "relay" / uid, of_pod=True)


def start_pod(uid: str) -> "subprocess.Popen[bytes]":
    """A relay pod by its manifest: its container's command, with a directory as a kubelet mounts it."""
    container = workload(deployed(), "nodeagent-relay").container
    (mount,) = container["volumeMounts"]
    assert mount["subPathExpr"] == "$(POD_UID)"
    path, inside = pod_directory(uid).path, mount["mountPath"]
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    Path(inside).mkdir(exist_ok=True)
    base = next(one["value"] for one in container["env"] if one["name"] == "BASE")
    bound = ["unshare", "--mount", "sh", "-c", f'mount --bind {path} {inside}; exec "$@"', "sh"]
    return subprocess.Popen(
        [*bound, *container["command"]],
        env={**os.environ, "POD_NAME": f"nodeagent-relay-{uid}", "BASE": base},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


@pytest.fixture
def relays() -> KeptRelay:
    return KeptRelay(PODS)


def _await_running(uid: str) -> None:
    def runs() -> bool:
        return any(one.running and one.directory.name == uid for one in KeptRelay(PODS).read().haproxies)

    wait_until(runs, f"HAProxy of pod {uid}", seconds=20)


def _pod(uid: str) -> "subprocess.Popen[bytes]":
    started = start_pod(uid)
    _await_running(uid)
    return started


def _kill(uid: str, victim: str = "worker", number: signal.Signals = signal.SIGKILL) -> None:
    found = KeptRelay.processes(pod_directory(uid).path)
    os.kill(found.master if victim == "master" else found.workers[-1], number)


def _is_healthy() -> bool:
    """Whether the kubelet's liveness probe would succeed."""
    try:
        with socket.create_connection((str(HEALTH.address), HEALTH.port), 1) as connection:
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(100)
    except OSError:
        return False


@isolated
def test_a_pod_starts_without_an_agent_and_is_ready_once_one_has_configured_it(relays: KeptRelay) -> None:
    started = _pod("a")
    assert _is_healthy()
    ready = pod_directory("a").path / "ready"
    assert not ready.exists()
    relays.serve([A])
    assert relays.ready_of([A]) == {A.bind}
    assert (relays.state().pod, ready.exists()) == ("nodeagent-relay-a", True)
    assert relays.state().version[:2] in {"2.", "3."}
    assert not relays.difference([A])
    assert _is_healthy()
    before = KeptRelay.processes(pod_directory("a").path)
    later = KeptRelay(PODS)
    assert not later.difference([A]), "another agent finds nothing to do"
    assert KeptRelay.processes(pod_directory("a").path) == before
    assert not (RUN / "haproxy.cfg").exists()
    started.kill()


@isolated
def test_no_pod_is_an_error_that_says_what_to_do(relays: KeptRelay) -> None:
    assert not relays.difference([])
    with pytest.raises(ApplyError) as caught:
        relays.serve([A])
    for words in ("no relay pod's HAProxy answers in /run/nodeagent/relay", "relay.launch: true"):
        assert words in str(caught.value)
    assert relays.difference([A]).text.endswith("\nwait for a relay pod")
    assert alive("haproxy") == []


@isolated
def test_a_port_that_the_pod_needs_and_another_program_has_is_named() -> None:
    with squatter(HEALTH.port, str(HEALTH.address)) as taken:
        assert taken
        words = r"127\.0\.0\.1:9468, which it needs, is held by a process of user"
        with pytest.raises(ApplyError, match=words):
            KeptRelay(PODS).serve([A])


@isolated
def test_a_new_pod_takes_the_new_connections_and_the_old_one_keeps_its_own(relays: KeptRelay) -> None:
    with backend(A.server):
        old = _pod("old")
        relays.serve([A])
        with echo(A.bind) as kept:
            new = _pod("new")
            assert relays.ready_of([A]) == {A.bind}, "the old one serves until then"
            assert "reload HAProxy of nodeagent-relay-new" in relays.difference([A]).text
            assert not relays.difference([A]).repairs, "no other program's doing: it must not wait"
            relays.serve([A])
            assert relays.state().pod == "nodeagent-relay-new"
            assert (pod_directory("new").path / "ready").exists()
            assert not relays.difference([A])
            old.terminate()
            wait_until(lambda: len(relays.read().haproxies) == 1, "the old one's end being known")
            assert relays.ready_of([A]) == {A.bind}
            assert {who(A.bind) for _ in range(20)} == {f"v1 {RELAY}"}
            assert echoes(kept)
            assert old.poll() is None
        assert old.wait(20) == 0
        relays.serve([A])
        assert not pod_directory("old").path.exists(), "the agent removed what the pod left"
        assert relays.ready_of([A]) == {A.bind}
        new.terminate()
        assert new.wait(20) == 0


@isolated
def test_one_that_is_started_again_while_two_serve_is_steered_anew(relays: KeptRelay) -> None:
    with backend(A.server):
        for uid in ("old", "new"):
            _pod(uid)
            relays.serve([A])
        _kill("new")
        wait_until(lambda: bool(relays.difference([A])), "the difference", seconds=20)
        wait_until(lambda: all(each.current for each in relays.read().haproxies), "both", seconds=20)
        assert relays.difference([A]).text == "steer new connections to HAProxy of nodeagent-relay-new"
        assert not relays.difference([A]).repairs
        relays.serve([A])
        assert not relays.difference([A])


@isolated
def test_whatever_prevents_steering_is_one_line_in_the_log_and_both_serve(
    relays: KeptRelay, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no index leads there")

    monkeypatch.setattr("nodeagent.components.relay.component.steer", fail)
    with backend(A.server):
        for uid in ("old", "new"):
            _pod(uid)
            caplog.clear()
            relays.serve([A])
        assert [each.levelname for each in caplog.records] == ["WARNING"]
        assert {who(A.bind) for _ in range(20)} == {f"v1 {RELAY}"}
        assert (pod_directory("new").path / "ready").exists()


@isolated
def test_the_older_pod_serves_while_the_younger_one_can_not(relays: KeptRelay) -> None:
    with backend(A.server):
        _pod("old")
        relays.serve([A])
        new = _pod("new")
        _kill("new", "master", signal.SIGSTOP)
        assert not relays.difference([A])
        assert relays.ready_of([A]) == {A.bind}
        assert relays.state().pod == "nodeagent-relay-old"
        assert not (pod_directory("new").path / "ready").exists()
        new.kill()


@isolated
def test_a_pod_that_can_not_be_configured_is_an_error_only_if_no_other_can(relays: KeptRelay) -> None:
    for uid in ("old", "new"):
        _pod(uid)
    pod_directory("old").path.chmod(0o777)
    assert relays.serve_what_it_can([A]).startswith("nodeagent-relay-old: ")
    assert relays.ready_of([A]) == {A.bind}
    pod_directory("new").path.chmod(0o777)
    with pytest.raises(ApplyError, match=r"^nodeagent-relay-old: (?s:.*)\nnodeagent-relay-new: "):
        relays.serve([A, B])


@isolated
def test_what_it_can_not_start_with_it_replaces_and_the_agent_writes_it_again(relays: KeptRelay) -> None:
    _pod("a")
    gone = listener("169.254.66.99", port=80)
    relays.serve([A])
    config = pod_directory("a").config
    config.write_text(config.read_text() + "\nlisten x\n    bind 169.254.66.99:80\n")
    _kill("a", "master")
    wait_until(lambda: "169.254.66" not in config.read_text(), "the first configuration", seconds=20)
    _await_running("a")
    for _ in range(2):
        (left_out,) = relays.serve_what_it_can([A, gone]).splitlines()
        assert left_out.startswith("169.254.66.99:80: ")
    assert relays.ready_of([A]) == {A.bind}


@isolated
def test_a_pod_ends_although_haproxy_loses_the_signal_in_a_reload() -> None:
    started = _pod("a")
    (master,) = (pid for pid in children(started.pid) if pid in alive("haproxy"))
    os.kill(master, signal.SIGUSR2)
    started.terminate()
    assert started.wait(20) == 0


@isolated
def test_a_pod_that_can_not_run_haproxy_ends_with_an_error() -> None:
    """So that the kubelet shows it, and waits longer and longer."""
    with socket.create_server((str(HEALTH.address), HEALTH.port)):
        started = start_pod("a")
        assert started.wait(60) == 1


@isolated
def test_only_the_directory_of_a_pod_without_processes_is_gone(relays: KeptRelay) -> None:
    started = _pod("a")
    left, starting, stranger = (pod_directory(uid) for uid in ("left", "starting", "stranger"))
    for directory in (left, starting, stranger):
        directory.path.mkdir()
    (left.path / "lock").touch()
    link = pod_directory("link").path
    link.symlink_to(pod_directory("a").path)
    (stranger.path / "file").touch()
    os.utime(stranger.path, (1, 1))
    relays.serve([A])
    assert [one.directory.name for one in relays.read().haproxies if one.running] == ["a"]
    link.unlink()
    assert not left.path.exists()
    assert starting.path.exists()
    assert (stranger.path / "file").exists(), "nothing of nodeagent's"
    shutil.rmtree(stranger.path)
    relays.clean_up()
    assert pod_directory("a").path.exists()
    assert relays.read().listeners == ()
    assert relays.state().current, "a pod keeps an empty configuration"
    started.terminate()
    assert started.wait(20) == 0
    starting.path.rmdir()
    relays.clean_up()
    assert not RUN.exists()


@isolated
def test_a_haproxy_that_was_launched_by_an_earlier_agent_is_stopped_at_the_end(relays: KeptRelay) -> None:
    launched = KeptRelay()
    launched.serve([A])
    assert relays.difference([]).text == "stop HAProxy: nodeagent launched it"
    relays.clean_up()
    assert alive("haproxy") == []
    assert not RUN.exists()


@isolated
def test_the_watch_sees_pods_come_restart_and_go(relays: KeptRelay) -> None:
    with closing(relays.watch()) as watch:
        assert (watch.drain(), watch.seconds) == ("", 0.5)

        def said(words: str) -> None:
            wait_until(lambda: words in watch.drain(), words, seconds=20)

        started = start_pod("a")
        said("HAProxy of nodeagent-relay-a answers")
        _await_running("a")
        relays.serve([A])
        said("HAProxy of nodeagent-relay-a stopped, or was reloaded")
        _kill("a")
        said("HAProxy of nodeagent-relay-a stopped")
        wait_until(lambda: bool(relays.ready_of([A])), "its return", seconds=20)
        wait_until(lambda: not relays.difference([A]), "nothing left to do", seconds=20)
        started.terminate()
        said("nodeagent-relay-a has ended")
        assert watch.drain() == ""
    relays.apply(relays.diff(relays.read(), Desired()))
    assert not pod_directory("a").path.exists()


@isolated
def test_a_pod_is_served_without_the_program(relays: KeptRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    _pod("a")
    relays.serve([A])
    monkeypatch.setenv("PATH", "/nonexistent")
    relays.serve([A, B])
    assert relays.ready_of([A, B]) == {A.bind, B.bind}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less; but as long as a reload takes on a busy machine."""
    monkeypatch.setattr("nodeagent.components.relay.haproxy_sockets.ASK_SECONDS", 0.2)
    monkeypatch.setattr("nodeagent.components.relay.activation._ACTIVE_SECONDS", 4.0)


@pytest.mark.parametrize("answer", [hangs, garbage])
@isolated
def test_a_worker_that_can_not_be_asked_serves_what_is_added(impatient: None, answer: Answer) -> None:
    relay = KeptRelay()
    relay.serve([A])
    # HAProxy would make its own again at the reload.
    other = relay._launched.stats_socket = RUN / "other.sock"  # noqa: SLF001
    with backend(A.server), answering(other, answer):
        assert isinstance(relay.statistics(), Unreachable)
        assert relay.ready_of([A]) == {A.bind}
        assert relay.apply(relay.difference([A, B])) == ""
        assert relay.ready_of([A, B]) == {A.bind, B.bind}
        assert who(B.bind) == f"v1 {RELAY_2}"


@pytest.mark.parametrize("answer", [hangs, garbage])
@isolated
def test_a_master_that_can_not_be_asked_leaves_what_it_serves(impatient: None, answer: Answer) -> None:
    relay = KeptRelay(PODS)
    _pod("a")
    relay.serve([A])
    with backend(A.server), answering(pod_directory("a").master_socket, answer):
        assert not any(each.running for each in relay.read().haproxies)
        with pytest.raises(ApplyError, match=r"^no relay pod's HAProxy answers in "):
            relay.serve([A, B])
        assert relay.ready_of([A]) == {A.bind}
        assert who(A.bind) == f"v1 {RELAY}"
