"""The loop by itself: roles, configurations, passes that raise, and when it waits."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.config.options import Config
from nodeagent.config.reading import AGENT, ConfigFile
from nodeagent.errors import NodeagentError
from nodeagent.runtime.bell import Bell
from nodeagent.runtime.driver import BEAT_SECONDS, Driver
from nodeagent.runtime.metric_set import Metric, Metrics
from nodeagent.runtime.status import IDLE_SECONDS, Status


class _Drive:
    """A driver, and what it drives: says what it heard, and does what the test wants."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.chosen = False
        self.standby_reason = ""
        self.pause = 0.0
        self.readable: tuple[int, ...] = ()
        self.failure: Exception | None = None
        self.signals: list[signal.Signals] = []
        """What this process hears in its next passes, one in each."""
        self.calls: list[str] = []
        self.config = folder / "nodeagent.yaml"
        self.config.write_text("hosts: {allow: [one.example]}\n")
        self.bell = Bell()
        self.status = Status([], lambda: self.now)
        file = ConfigFile(self.config, Config(), AGENT, lambda: self.config.stat().st_mtime + 60)
        self.metrics = Metrics("nodeagent_", [], (Metric("writer", "Whether it writes."),))
        self.driver = Driver(self, self, self.bell, self.status, self.metrics, file, lambda: self.now)

    def turns(self, count: int = 1) -> list[str]:
        """Make turns without waiting in them; return the calls since the last time."""
        for _ in range(count):
            self.bell.wake()
            self.driver.turn()
        calls, self.calls = self.calls, []
        return calls

    # The election.
    def is_writer(self) -> bool:
        return self.chosen

    # The work, and both's beginning and end.
    def start(self) -> None:
        self.calls.append("start")
        if self.failure:
            raise self.failure

    def become_writer(self) -> None:
        self.calls.append("become writer")

    def become_standby(self) -> None:
        self.calls.append("become standby")

    def reconfigure(self, config: Config) -> None:
        self.calls.append(f"use {', '.join(config.hosts.allow)}")

    def seconds_until_pass(self) -> float:
        return self.pause

    def descriptors(self) -> tuple[int, ...]:
        return self.readable

    def make_pass(self) -> None:
        self.calls.append("pass")
        if self.signals:
            os.kill(os.getpid(), self.signals.pop(0))
        if self.failure:
            raise self.failure

    def pass_failed(self, error: str) -> None:
        self.calls.append(error)

    def rest(self) -> None:
        self.calls.append("rest")

    def stop(self) -> None:
        self.calls.append("stop")

    def counted(self, series: str) -> bool:
        """Whether the metrics have this line."""
        return f"\nnodeagent_{series}\n" in self.metrics.exposition().decode()


@pytest.fixture
def drive(tmp_path: Path) -> _Drive:
    return _Drive(tmp_path)


def test_until_it_is_known_who_writes_it_is_starting(drive: _Drive) -> None:
    assert drive.turns() == ["rest"]
    assert drive.status.ready().text.startswith("not ready: starting\n")
    drive.standby_reason = "another writes"
    assert drive.turns() == ["rest"]
    assert drive.status.ready().text.startswith("ready: on standby\nrole: standby: another writes\n")


def test_the_writer_makes_a_pass_when_one_is_due(drive: _Drive) -> None:
    drive.chosen = True
    assert drive.turns() == ["become writer", "pass"]
    drive.pause = 1.0
    assert drive.turns() == ["rest"]
    drive.pause = -1.0
    assert drive.turns(2) == ["pass", "pass"]


def test_a_role_that_is_lost_ends_the_passes_and_begins_again_later(drive: _Drive) -> None:
    drive.chosen = True
    drive.turns()
    assert drive.counted("writer 1.0")
    drive.chosen, drive.standby_reason = False, "another writes"
    assert drive.turns(2) == ["become standby", "rest", "rest"]
    assert drive.counted("writer 0.0")
    assert "standby: another writes" in drive.status.ready().text
    drive.chosen = True
    assert drive.turns() == ["become writer", "pass"]


def test_a_pass_that_raises_is_reported_and_the_next_waits_ten_seconds(
    drive: _Drive, caplog: pytest.LogCaptureFixture
) -> None:
    drive.chosen, drive.failure = True, ZeroDivisionError("an odd object")
    assert drive.turns()[-2:] == ["pass", "ZeroDivisionError: an odd object"]
    assert "waiting for events" in drive.status.alive().text
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    drive.failure = None
    drive.now += 9.9
    assert drive.turns() == ["rest"]
    drive.now += 0.1
    assert drive.turns() == ["pass"]


def test_a_changed_configuration_is_used_and_a_bad_one_is_not(
    drive: _Drive, caplog: pytest.LogCaptureFixture
) -> None:
    drive.config.write_text("hosts: {allow: [one.example, two.example]}\n")
    assert drive.turns(2) == ["use one.example, two.example", "rest", "rest"]
    drive.config.write_text("hosts: {alow: [three.example]}\n")
    assert drive.turns(2) == ["rest", "rest"]
    assert "unknown key; did you mean 'allow'?" in str(caplog.records[-1].__dict__["fields"])
    drive.config.write_text("hosts: {file: /elsewhere}\n")
    assert drive.turns() == ["rest"]
    assert "hosts.file can't change while the agent runs" in str(caplog.records[-1].__dict__["fields"])
    assert drive.counted('config_reloads_total{result="ok"} 1.0')
    assert drive.counted('config_reloads_total{result="rejected"} 2.0')


def test_what_becomes_readable_ends_the_wait_if_the_work_then_has_a_reason(drive: _Drive) -> None:
    """What does not concern the work wakes nothing but its own question."""
    drive.chosen, drive.pause = True, BEAT_SECONDS
    assert drive.turns() == ["become writer", "rest"]
    source, sink = os.pipe()
    drive.readable = (source,)
    asked: list[bytes] = []

    def seconds_until_pass() -> float:
        if os.get_blocking(source):
            os.set_blocking(source, False)
        try:
            asked.append(os.read(source, 1))
        except BlockingIOError:
            return BEAT_SECONDS
        return 0.0 if asked[-1] == b"!" else BEAT_SECONDS

    drive.seconds_until_pass = seconds_until_pass  # type: ignore[method-assign]
    os.write(sink, b".")
    writing = threading.Timer(0.05, os.write, (sink, b".!"))
    writing.start()
    drive.driver.turn()
    assert asked == [b".", b".", b"!"]
    assert drive.calls == ["rest"]
    os.close(source)
    os.close(sink)


def test_another_role_ends_the_wait(drive: _Drive) -> None:
    change = threading.Timer(0.05, lambda: setattr(drive, "chosen", True))
    change.start()
    drive.driver.turn()
    assert drive.turns() == ["rest", "become writer", "pass"]


@pytest.fixture
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_own_signals")
def test_it_runs_until_a_signal_and_stops_everything(drive: _Drive) -> None:
    """Before that, SIGHUP makes it use a file that did not change."""
    drive.chosen, drive.signals = True, [signal.SIGHUP, signal.SIGTERM]
    drive.driver.run()
    begun, ended = ["start", "start", "become writer", "pass"], ["pass", "stop", "stop"]
    assert drive.calls == [*begun, "use one.example", *ended]


@pytest.mark.usefixtures("_own_signals")
def test_if_it_cant_begin_nothing_goes_on(drive: _Drive) -> None:
    drive.failure = NodeagentError("the address is taken")
    with pytest.raises(NodeagentError, match="the address is taken"):
        drive.driver.run()
    assert "pass" not in drive.calls


def test_it_gives_a_sign_often_enough(drive: _Drive) -> None:
    assert IDLE_SECONDS / 2 > BEAT_SECONDS
    drive.now += IDLE_SECONDS + 1
    assert not drive.status.alive().ok
    drive.turns()
    assert drive.status.alive().ok
