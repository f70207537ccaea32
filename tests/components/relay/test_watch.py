"""What the watch of HAProxy says: from a connection to its master's socket."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from nodeagent.components.relay import process
from nodeagent.components.relay.watch import RelayWatch
from nodeagent.model.desired import Desired
from tests.components.converging import seen, watching
from tests.components.relay.namespace import CONFIG, RUN, A, B, KeptRelay, isolated, processes
from tests.testbed.waiting import wait_until


@contextmanager
def _watched() -> Iterator[tuple[KeptRelay, RelayWatch]]:
    """HAProxy with one listener, and its watch."""
    relay = KeptRelay(drain_seconds=0.1)
    relay.serve([A])
    with closing(relay.watch()) as watch:
        yield relay, watch


def _stopped(watch: RelayWatch) -> None:
    """Wait until it says so. Before, one that is ending may have let it connect once more."""
    while (said := seen(watch)) != "HAProxy stopped":
        assert said == "HAProxy stopped, or was reloaded"


@pytest.mark.parametrize("victims", [("worker",), ("master",), ("master", "worker")])
@isolated
def test_its_end_and_its_return_are_seen(victims: tuple[str, ...]) -> None:
    with _watched() as (relay, watch):
        found = processes()
        pids = {"master": found.master, "worker": found.workers[0]}
        for victim in victims:
            os.kill(pids[victim], signal.SIGKILL)
        _stopped(watch)
        assert watch.drain() == ""
        relay.serve([A])
        assert watch.drain() == "HAProxy answers"
        process.stop(CONFIG, 0.1)
        _stopped(watch)


@isolated
def test_a_reload_by_another_program_is_seen() -> None:
    with _watched() as (_, watch):
        os.kill(processes().master, signal.SIGUSR2)
        assert seen(watch) == "HAProxy stopped, or was reloaded"


@isolated
def test_none_at_first_is_waited_for() -> None:
    RUN.mkdir(mode=0o700)
    relay = KeptRelay()
    with closing(relay.watch()) as watch:
        assert watch.drain() == ""
        relay.serve([A])
        assert watch.seconds < 1
        assert seen(watch) == "HAProxy answers"


@isolated
def test_own_starts_reloads_and_stops_are_not_noticed(relays: KeptRelay) -> None:
    with watching(relays) as cached:
        for listeners in ((A,), (A, B), (B,), (), (A,), (A, B)) * 2:
            for keep in (True, False):
                cached.apply(Desired(listeners=listeners), keep=keep)
                assert cached.notice() == ""
            assert not cached.diff(Desired(listeners=listeners))
        os.kill(processes().master, signal.SIGKILL)
        wait_until(lambda: bool(cached.notice()), "its end being seen")
        assert cached.diff(Desired(listeners=(A, B))).text == "start HAProxy: no HAProxy answers"
