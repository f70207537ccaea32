"""`nodeagent coredns run`: keeps CoreDNS's configuration up to date.

A pass every ten seconds reads the ConfigMaps again: CoreDNS takes a minute to see a change, so a watch would
gain nothing. Without the API, CoreDNS continues with what it has.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from nodeagent.backoff import SubjectBackoff
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.options import Config
from nodeagent.config.reading import COREDNS_CONTROLLER, ConfigFile
from nodeagent.coredns.coredns_reconciler import CoreDnsPass, CoreDnsReconciler
from nodeagent.dns.verifier import SPREAD_SECONDS, DnsVerifier
from nodeagent.errors import NodeagentError
from nodeagent.model.decisions import DecisionStatus
from nodeagent.observe.event_recorder import EventRecorder, name_events
from nodeagent.observe.metrics import CONFIG, Metrics, reload_config
from nodeagent.observe.status import Status
from nodeagent.observe.telemetry_server import TelemetryServer, pages
from nodeagent.observe.transition_log import TransitionLog, say
from nodeagent.sources.api_servers import find_api_servers
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.fail_static import KindState
from nodeagent.sources.upstream_dns import ask_upstream

_LOG = logging.getLogger("nodeagent")

API, NAMES = "api", "coredns"
"""The components of the health page: what is read from the cluster, and what is written for CoreDNS."""

_TURN_SECONDS = 1.0
_EVERY_SECONDS, _LONGEST_SECONDS = 10.0, 60.0
"""Between two passes. After writes that follow each other closely, ever longer: each makes CoreDNS reload,
and kubelets see no more than one change per minute anyway."""
_ENDING = {signal.SIGTERM, signal.SIGINT}
_SIGNALS = {*_ENDING, signal.SIGHUP}


class ControllerSettings(Struct, frozen=True):
    """What the controller was started with; `node_name` is any node's: it shows which cloud this is."""

    node_name: str
    config_file: Path | None = None
    telemetry: ListenAddress = Config().telemetry.listen
    adopt: bool = False


class Controller:
    """One controller, from start to end; `config` is as first read, `clock` returns monotonic seconds."""

    def __init__(
        self,
        settings: ControllerSettings,
        config: Config,
        connection: Connection,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config_file = ConfigFile(settings.config_file, config, COREDNS_CONTROLLER)
        self._clock = clock
        self._cluster = Cluster(connection, settings.node_name, config.relay.existing_service)
        api = find_api_servers(servers=[connection.server])
        self._reconciler = CoreDnsReconciler(connection, api, adopt=settings.adopt, clock=clock)
        self._verifier = DnsVerifier(
            ask_upstream(config.hosts), config.hosts.dns_recheck_seconds, spread_seconds=SPREAD_SECONDS
        )
        self._status = Status([API, CONFIG, NAMES])
        self._status.report(CONFIG, None)
        self._metrics = coredns_metrics(self._status)
        self._events = EventRecorder(connection, os.uname().nodename)
        self._reporter = CoreDnsReporter(self._events)
        paths = pages(self._status, self._metrics.exposition)
        self.service = TelemetryServer(paths, settings.telemetry.endpoint)
        self._next_pass = 0.0
        self._backoff: SubjectBackoff[str] = SubjectBackoff(
            clock, limit=1, first=_EVERY_SECONDS, longest=_LONGEST_SECONDS, forget=2 * _LONGEST_SECONDS
        )

    def run(self) -> None:
        """Run in the main thread until SIGTERM or SIGINT. Raises NodeagentError: it can't begin."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self.start()
            while True:
                caught = signal.sigtimedwait(_SIGNALS, _TURN_SECONDS)
                if caught and caught.si_signo in _ENDING:
                    return
                self.turn(reload=caught is not None)
        finally:
            self.stop()

    def start(self) -> None:
        """Serve the pages and watch the cluster."""
        self._cluster.start()  # first: once started, it can be stopped
        self.service.start()
        self._events.start()

    def stop(self) -> None:
        """End the threads; CoreDNS keeps what it has."""
        self._verifier.stop()
        self._cluster.stop()
        self.service.close()
        _LOG.info("Stopping; nodeagent's entries stay in CoreDNS")

    def turn(self, *, reload: bool = False) -> None:
        """Take over a changed configuration, at once if `reload`; then make a pass if one is due."""
        self._status.heartbeat()
        self._reload_config(at_once=reload)
        self._report_sources()
        now, snapshot = self._clock(), self._cluster.snapshot()
        if snapshot is None or snapshot.pending or now < self._next_pass:
            return
        self._next_pass = now + _EVERY_SECONDS
        try:
            done = self._reconciler.reconcile(snapshot, self._verifier.answers(), self._config_file.config)
            if done.written:
                self._next_pass = now + self._backoff.wrote(NAMES)
            self._verifier.want(done.desired.questions)
            self._reporter.report(done)
            errors = [*done.errors.values()]
        except NodeagentError as error:
            errors = [str(error)]
            self._reporter.failed(errors)
        except Exception as error:  # noqa: BLE001 - see below
            # A bug in nodeagent, triggered by some odd object. What exists stays, the process continues.
            _LOG.exception("Reconcile pass failed; nothing else is changed, and the next pass follows soon")
            errors = [f"{type(error).__name__}: {error}"]
        self._status.report(NAMES, "; ".join(errors) or None)
        if not errors:
            self._status.synced()

    def _reload_config(self, *, at_once: bool) -> None:
        if not reload_config(self._config_file, self._metrics, at_once=at_once):
            return
        config = self._config_file.config
        self._verifier.ask_by(ask_upstream(config.hosts), config.hosts.dns_recheck_seconds)
        self._next_pass = self._clock()

    def _report_sources(self) -> None:
        """Report what can't be read: without it no pass begins, or the pass uses what was known."""
        states, pending = self._cluster.states(), KindState.PENDING
        failed = {kind.name: kind.error for kind in states if kind.error and not kind.optional}
        # What was never read yet withholds all passes as well.
        failed = failed or {kind.name: kind.error for kind in states if kind.error and kind.state is pending}
        unread = "Could not read from the API server; CoreDNS keeps what it has"
        self._reporter.log.problems(unread, failed, "resource")
        errors = sorted({*failed.values()})
        if errors or all(kind.synced or kind.optional for kind in states):
            self._status.report(API, "; ".join(errors) or None)


COREDNS_NAME_CODES = frozenset({"WildcardNotAllowed"})
"""What only CoreDNS does not get; the agents report everything else."""


class CoreDnsReporter:
    """Reports the passes of one controller, and in its `log` what else is a problem."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self.log = TransitionLog()

    def report(self, done: CoreDnsPass) -> None:
        """Log the pass, and record its Events."""
        served = sum(decision.status is DecisionStatus.SERVED for decision in done.edits.decisions)
        for path in done.written:
            say(logging.INFO, "Wrote a ConfigMap", configmap=path, names=served, way=done.edits.way)
        decided = replace(done.desired, names=done.edits.decisions)
        self.log.decisions(decided)
        self._events.record((*done.conflicts, *name_events(decided, COREDNS_NAME_CODES)))
        for event in done.conflicts:
            say(logging.WARNING, "Another program reverted the Corefile", reason=event.message)
        self.failed((*done.edits.remarks, *done.errors.values()))

    def failed(self, errors: Iterable[str]) -> None:
        """Report what a pass could not do, if the one before could."""
        self.log.problems("Could not do everything", {error: error for error in errors})


def coredns_metrics(status: Status) -> Metrics:
    """Return the controller's metrics, under names that alerts for agents do not count, and vice versa."""
    return Metrics("nodeagent_coredns_", status)
