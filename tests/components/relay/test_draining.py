"""A HAProxy whose pod ends: idle connections are closed, those in use go on, and not for ever."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.relay.draining import DrainProgress, drain, fair_share, idle_of
from tests.components.relay.backend import Download, backend, echo, echoes
from tests.components.relay.namespace import MASTER, SIDECAR, A, B, KeptRelay, isolated, start_sidecar
from tests.testbed.waiting import wait_until

MIB = 1 << 20


class _Sidecar:
    """HAProxy as the relay's container runs it, serving A."""

    def __init__(self) -> None:
        self.relays = KeptRelay(SIDECAR)
        self.process = start_sidecar()
        self.relays.serve([A])
        self.looks: list[DrainProgress] = []

    def drain(self, idle: float, longest: float = 60.0, begin: float = 5.0) -> threading.Thread:
        """Drain in a thread; a look is added to the list after each other."""
        thread = threading.Thread(
            target=lambda: self.looks.extend(drain(MASTER, idle, longest, begin)), daemon=True
        )
        thread.start()
        return thread


@contextmanager
def _serving() -> Iterator[_Sidecar]:
    with backend(A.server):
        sidecar = _Sidecar()
        yield sidecar
        sidecar.process.kill()


@isolated
def test_an_idle_connection_is_closed_and_a_slow_download_arrives_whole() -> None:
    with _serving() as sidecar, echo(A.bind) as idle:
        download = Download(A.bind, 40 * MIB)
        download.read(MIB)
        thread = sidecar.drain(idle=3.0)
        sidecar.process.send_signal(signal.SIGUSR1)
        began = time.monotonic()
        # Slower than once each look, and for longer than what counts as idle.
        while time.monotonic() - began < 8:
            assert download.read(MIB) == MIB
            time.sleep(0.7)
        idle.settimeout(0.1)
        assert idle.recv(100) == b""
        assert sidecar.process.poll() is None
        assert download.whole()
        assert sidecar.process.wait(5) == 0
        thread.join(5)
        assert not thread.is_alive()
    assert sum(look.closed for look in sidecar.looks) == 1
    assert {look.left for look in sidecar.looks} >= {1, 2}


@isolated
def test_what_was_idle_before_the_end_is_closed_at_once() -> None:
    """Also that of an earlier worker: a reload leaves the old process to its connections."""
    with _serving() as sidecar, echo(A.bind) as earlier:
        sidecar.relays.serve([A, B])
        with echo(B.bind) as idle:
            time.sleep(3.1)
            sidecar.process.send_signal(signal.SIGUSR1)
            began = time.monotonic()
            sidecar.drain(idle=2.0)
            assert earlier.recv(100) == idle.recv(100) == b""
            assert time.monotonic() - began < 1
        assert sidecar.process.wait(5) == 0


@isolated
def test_the_longest_wait_holds_for_a_connection_that_is_in_use() -> None:
    with _serving() as sidecar:
        download = Download(A.bind, 400 * MIB)
        download.read(MIB)
        began = time.monotonic()
        sidecar.drain(idle=60.0, longest=3.0)
        sidecar.process.send_signal(signal.SIGUSR1)
        while sidecar.process.poll() is None and time.monotonic() - began < 20:
            download.read(MIB // 4)
            time.sleep(0.1)
        assert 3 <= time.monotonic() - began < 6
        assert not download.whole()


@isolated
def test_a_haproxy_that_goes_on_keeps_its_idle_connections() -> None:
    """Only the agent gets a signal to end, or its pod's relay does not get one in time."""
    with _serving() as sidecar, echo(A.bind) as idle:
        thread = sidecar.drain(idle=0.0, begin=2.0)
        thread.join(10)
        assert not thread.is_alive()
        assert sidecar.looks == []
        assert echoes(idle)


@isolated
def test_a_master_that_is_silent_for_a_while_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.components.relay.draining._ASK_SECONDS", 0.2)
    with _serving() as sidecar, echo(A.bind) as idle:
        thread = sidecar.drain(idle=3.0)
        sidecar.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: bool(sidecar.looks), "a look at the connections")
        sidecar.process.send_signal(signal.SIGSTOP)
        # Long enough to be asked more than once.
        thread.join(2)
        assert thread.is_alive()
        sidecar.process.send_signal(signal.SIGCONT)
        assert idle.recv(100) == b""
        assert sidecar.process.wait(5) == 0
        thread.join(5)
        assert not thread.is_alive()


@isolated
def test_a_silent_master_that_is_not_known_to_end_is_left_alone_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodeagent.components.relay.draining._ASK_SECONDS", 0.2)
    with _serving() as sidecar:
        sidecar.process.send_signal(signal.SIGSTOP)
        thread = sidecar.drain(idle=0.0, begin=2.0)
        thread.join(1)
        assert thread.is_alive()
        thread.join(5)
        assert not thread.is_alive()
        assert sidecar.looks == []


@isolated
def test_many_idle_connections_are_closed_in_a_few_looks() -> None:
    with _serving() as sidecar, ExitStack() as held:
        kept = [held.enter_context(echo(A.bind, f"127.0.1.{number % 5 + 1}")) for number in range(1000)]
        # It waits for HAProxy to begin to end, in a process with more than 1024 descriptors.
        thread = sidecar.drain(idle=1.0)
        thread.join(1.5)
        assert thread.is_alive()
        sidecar.process.send_signal(signal.SIGUSR1)
        thread.join(60)
        assert [each.recv(1) for each in kept] == [b""] * 1000
        assert sidecar.process.wait(5) == 0
    closing = [look.closed for look in sidecar.looks if look.closed]
    assert sum(closing) == 1000
    # One a second: those that are not idle for so long at the first are at the next.
    assert len(closing) <= 4


_2_6 = (
    "0x5628fd54eea0: proto=tcpv4 src=127.0.0.1:55424 fe=a be=a srv=s ts=00 epoch=0 age=2s calls=2 rate=0 "
    "cpu=0 lat=0 rq[f=a48000h,i=0,an=00h,rx={},wx=,ax=] rp[f=80248202h,i=0,an=00h,rx={},wx=,ax=] "
    "scf=[8,0h,fd=10] scb=[8,1h,fd=11] exp=2s rc=0 c_exp="
)
_3_0 = (
    "0x7f45eb055c00: proto=tcpv6 src=::1:58318 fe=a be=a srv=s ts=00 epoch=0 age=3s calls=2 rate=0 "
    "cpu=0 lat=0 rq[f=848000h,i=0,an=00h,ax=] rp[f=80008001h,i=0,an=00h,ax=] scf=[8,0h,fd=11,rex={},wex=] "
    "scb=[8,1h,fd=12,rex={},wex=] exp=2s rc=0 c_exp="
)


@pytest.mark.parametrize("line", [_2_6, _3_0])
@pytest.mark.parametrize(
    ("left", "idle"),
    [
        (("59m57s", "59m57s"), 3.0),
        # The side that sends counts.
        (("20m0s", "59m59s"), 1.0),
        (("1h0m", "1h0m"), 0.0),
        # Half closed: the shorter timeout holds.
        (("4m50s", ""), 10.0),
        (("", "59m50s"), 10.0),
        (("42s", "42s"), 258.0),
        (("", ""), None),
    ],
)
def test_the_idle_time_of_a_session(line: str, left: tuple[str, str], idle: float | None) -> None:
    found = idle_of(line.format(*left))
    assert found == (None if idle is None else (line.partition(":")[0], idle))


@pytest.mark.parametrize("line", [_2_6.replace("wx=,", "wx=59m2s,"), _3_0.replace("wex=", "wex=59m2s")])
def test_data_that_a_slow_reader_has_not_taken_are_no_idle_connection(line: str) -> None:
    assert idle_of(line.format("59m1s", "59m1s")) == (line.partition(":")[0], 0.0)


def test_a_time_of_thousands_of_digits_is_no_idle_time() -> None:
    assert idle_of(f"0x55d: proto=tcpv4 src=10.0.0.1:4 rx={'9' * 5000}s") == ("0x55d", 0.0)


def test_haproxys_own_sessions_are_none_of_a_client() -> None:
    assert (
        idle_of(
            _2_6.format("59m", "59m").replace("proto=tcpv4 src=127.0.0.1:55424", "proto=sockpair src=unix:2")
        )
        is None
    )
    assert idle_of("") is None


@given(st.lists(st.integers(1, 100)), st.integers(0, 500))
def test_a_fair_share_is_the_largest_that_fits(counts: list[int], most: int) -> None:
    share = fair_share(counts, most)
    assert sum(min(count, share) for count in counts) <= most or not share
    assert share >= max(counts, default=0) or sum(min(count, share + 1) for count in counts) > most
