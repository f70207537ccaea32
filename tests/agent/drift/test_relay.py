import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nodeagent.agent.drift.relay import RelayWatcher
from nodeagent.components.relay import process
from tests.agent.drift.recorder import Recorder, running
from tests.components.relay.namespace import CONFIG, MASTER, RUN, A, B, KeptRelay, isolated, processes
from tests.testbed.waiting import wait_until


@contextmanager
def watched() -> Iterator[tuple[RelayWatcher, KeptRelay, Recorder]]:
    """HAProxy with one listener, and its watcher."""
    RUN.mkdir(mode=0o700)
    (RUN / "lock").touch()  # as with a running agent: the directory stays when HAProxy is stopped
    said = Recorder()
    watcher = RelayWatcher(MASTER, said)
    relay = KeptRelay(drain_seconds=0.1)
    with running(watcher):
        apply(watcher, relay, A)
        yield watcher, relay, said


def apply(watcher: RelayWatcher, relay: KeptRelay, *listeners: object) -> None:
    wanted = [each for each in (A, B) if each in listeners]
    with watcher.quiet():
        relay.difference(wanted).grow.apply()
        watcher.expect(relay.difference(wanted).shrink.apply())
    wait_until(lambda: bool(watcher.state().error) != bool(wanted), "a state", seconds=20)


@isolated
def test_a_killed_worker_master_or_both_is_seen_within_a_second() -> None:
    with watched() as (watcher, relay, said):
        for victims in (("worker",), ("master",), ("master", "worker")):
            alive = processes()
            pids = {"master": alive.master, "worker": alive.workers[0]}
            for victim in victims:
                os.kill(pids[victim], signal.SIGKILL)
            assert "HAProxy has stopped" in said.next(), victims
            assert "HAProxy does not answer" in watcher.state().error
            apply(watcher, relay, A)
        apply(watcher, relay, A, B)
        process.stop(CONFIG, 0.1)
        assert "HAProxy has stopped" in said.next()


@isolated
def test_own_reloads_starts_and_stops_cause_no_pass() -> None:
    with watched() as (watcher, relay, said):
        for listeners in ((A, B), (A,), (B,), (), (A,), (A, B)):
            apply(watcher, relay, *listeners)
        os.kill(processes().master, signal.SIGKILL)
        assert "HAProxy has stopped" in said.next()


@isolated
def test_a_reload_by_another_program_is_reported() -> None:
    with watched() as (_, _, said):
        os.kill(processes().master, signal.SIGUSR2)
        assert said.next() == "HAProxy was restarted or reloaded by another program"


@isolated
def test_none_at_first_is_no_drift_and_the_state_says_so() -> None:
    RUN.mkdir(mode=0o700)
    said = Recorder()
    watcher = RelayWatcher(MASTER, said)
    with running(watcher):
        assert "No such file or directory" in watcher.state().error
        assert said.next(0.7) == "nothing"


@isolated
def test_a_socket_without_an_answer_is_tried_again() -> None:
    with watched() as (_, _, said):
        master = processes().master
        os.kill(master, signal.SIGKILL)
        assert "HAProxy has stopped" in said.next()
        MASTER.unlink()
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(MASTER))
            silent.listen()
            assert said.next(1.0) == "nothing"
        process.stop(CONFIG, 0.1)
        process.start("haproxy", CONFIG, MASTER)
        said.until("HAProxy answers again", 3)


@isolated
def test_a_connection_without_a_word_is_not_timed_out() -> None:
    # 500 s were tried manually; the statistics socket's own limit of 10 s would show here.
    with watched() as (_, _, said):
        began = time.monotonic()
        assert said.next(11.0) == "nothing"
        assert time.monotonic() - began > 10
        os.kill(processes().workers[0], signal.SIGKILL)
        assert "HAProxy has stopped" in said.next()
