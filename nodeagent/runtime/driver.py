"""The loop of a process that keeps something in the desired state: configuration, role, pause, pass.

It drives the agent (agent/loop.py) and the CoreDNS controller (coredns/controller.py). It calls them in one
thread, so that neither the role nor the configuration changes within a pass.
"""

import logging
import signal
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from nodeagent.config.options import Config
from nodeagent.config.reading import ConfigFile
from nodeagent.errors import ConfigError
from nodeagent.runtime.bell import Bell
from nodeagent.runtime.metric_set import Metrics
from nodeagent.runtime.status import Role, Status

_LOG = logging.getLogger("nodeagent")

BEAT_SECONDS = 5.0
"""The longest time between two turns: so often the loop reports that it is alive."""
_POLL_SECONDS = 0.5
"""So often it looks who is to write: at most twice as long takes a hand-over between two idle processes."""
_STUMBLE_SECONDS = 10.0


class Election(Protocol):
    """Determines which of several processes writes."""

    @property
    def standby_reason(self) -> str:
        """Why this process does not write, for a person; empty if that is not known yet."""

    def start(self) -> None:
        """Take part, and return at once. Raises NodeagentError if that is not possible."""

    def is_writer(self) -> bool:
        """Whether a pass may begin. Called between passes: if another is to write, it may from now on."""

    def stop(self) -> None:
        """No longer take part, so that another need not wait; not during a pass. Idempotent."""


class Work(Protocol):
    """What is driven."""

    def start(self) -> None:
        """Begin to watch and to report; write nothing yet. Raises NodeagentError if it can't."""

    def become_writer(self) -> None:
        """Write from now on: passes begin, with one that checks everything."""

    def become_standby(self) -> None:
        """Leave the writing to another process."""

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from now on."""

    def seconds_until_pass(self) -> float:
        """Return how long there is no reason for a pass; 0 or less: one is due."""

    def descriptors(self) -> Iterable[int]:
        """Return what else becomes readable when there may be a reason for a pass."""

    def make_pass(self) -> None:
        """Make one. What is expected to fail is reported, and not raised."""

    def pass_failed(self, error: str) -> None:
        """Note that a pass raised an error, a bug: the next one checks everything."""

    def rest(self) -> None:
        """Do what is due between two passes; no event waits for it."""

    def stop(self) -> None:
        """Stop everything that `start` began, also if that failed; no other process writes yet."""


class Driver:
    """Runs the loop, from start to end.

    Args:
        work: What it drives.
        election: Whether it may write.
        bell: What wakes the loop.
        status: Where it reports that it is alive, and its role.
        metrics: Where it counts the same.
        config_file: The configuration, which is reloaded when its file changes, and on SIGHUP.
        clock: Monotonic seconds.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - its collaborators
        self,
        work: Work,
        election: Election,
        bell: Bell,
        status: Status,
        metrics: Metrics,
        config_file: ConfigFile,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self._election = election
        self._bell = bell
        self._status = status
        self._metrics = metrics
        self._config_file = config_file
        self._clock = clock
        self.writing = False
        """Whether this process is the writer."""
        self._stumbled_until = 0.0
        self._reload = False
        self._ending = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; to be called in the main thread.

        Raises:
            NodeagentError: it can't begin.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.end)
        signal.signal(signal.SIGHUP, self.reload)
        # Blocked until now by the manifests' `env`, the supervisor or __main__.py, so that none is lost.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self.start()
        try:
            while not self._ending:
                self.turn()
        finally:
            self.stop()

    def start(self) -> None:
        """Begin, without a turn; `stop` must follow. Raises NodeagentError if that is not possible."""
        self._election.start()
        try:
            self._work.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything; idempotent."""
        self._work.stop()
        self._election.stop()

    def end(self, *_: object) -> None:
        """Make `run` return soon; also a signal's handler."""
        self._ending = True
        self._bell.wake()

    def reload(self, *_: object) -> None:
        """Have the configuration reloaded; also a signal's handler."""
        self._reload = True
        self._bell.wake()

    def turn(self) -> None:
        """Take over a new configuration and a new role; then make a pass if one is due, else wait."""
        self._status.heartbeat()
        self._reload_config()
        self._take_role()
        pause = BEAT_SECONDS
        if self.writing:
            pause = max(self._stumbled_until - self._clock(), self._work.seconds_until_pass())
        if pause > 0:
            self._work.rest()
            self._wait(min(pause, BEAT_SECONDS))
            return
        self._status.heartbeat(busy=True)
        try:
            self._work.make_pass()
        except Exception as error:  # noqa: BLE001 - see below
            # A bug in nodeagent, triggered by some odd object. What exists stays, the process continues.
            _LOG.exception("Reconcile pass failed; nothing else is changed, and the next pass follows soon")
            self._work.pass_failed(f"{type(error).__name__}: {error}")
            self._stumbled_until = self._clock() + _STUMBLE_SECONDS
        finally:
            self._status.heartbeat()

    def _reload_config(self) -> None:
        at_once, self._reload = self._reload, False
        try:
            if not self._config_file.reload(at_once=at_once):
                return
        except ConfigError as error:
            fields = {"reason": str(error)}
            _LOG.error("Rejected the configuration; the old one stays active", extra={"fields": fields})
            self._metrics.config_reloaded(accepted=False)
            return
        _LOG.info("Reloaded the configuration")
        self._metrics.config_reloaded(accepted=True)
        self._work.reconfigure(self._config_file.config)

    def _take_role(self) -> None:
        before, self.writing = self.writing, self._election.is_writer()
        if self.writing and not before:
            _LOG.info("Became the writer")
            self._metrics.set_role(writing=True)
            self._status.became(Role.WRITER)
            self._work.become_writer()
        if self.writing:
            return
        reason = self._election.standby_reason
        if before:
            fields = {"reason": reason}
            _LOG.info("Another process is to write; this one is on standby", extra={"fields": fields})
            self._metrics.set_role(writing=False)
            self._work.become_standby()
        if before or reason:  # before another is seen, this process is starting
            self._status.became(Role.STANDBY, reason)

    def _wait(self, seconds: float) -> None:
        """Wait for the bell, for another role, for a reason of the work's, or so long."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            descriptors = self._work.descriptors() if self.writing else ()
            if self._bell.wait(min(left, _POLL_SECONDS), descriptors):
                return
            if self._election.is_writer() != self.writing:
                return
            if self.writing:
                until = min(until, self._clock() + self._work.seconds_until_pass())
