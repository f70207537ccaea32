"""`nodeagent coredns run`: keeps CoreDNS's configuration up to date, while it holds the Lease.

The controller reads the ConfigMaps again for every pass, and checks them every few seconds: CoreDNS itself
takes a minute to see a change of its ConfigMap, so a watch would gain nothing. Without the API nothing
changes: CoreDNS continues with what it has.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from msgspec import Struct

from nodeagent.backoff import backoff
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.options import Config
from nodeagent.config.reading import COREDNS_CONTROLLER, ConfigFile
from nodeagent.coredns.coredns_reconciler import CoreDnsPass, CoreDnsReconciler
from nodeagent.coredns.lease import CLIENT_GO, LeaderElector, LeaseTiming
from nodeagent.errors import NodeagentError, SourceError
from nodeagent.model.desired import Desired, Verdict
from nodeagent.model.objects import ObjectRef
from nodeagent.runtime.decision_log import changed_names, log_decisions
from nodeagent.runtime.dns_verifier import SPREAD_SECONDS, DnsVerifier, ask_upstream
from nodeagent.runtime.driver import BEAT_SECONDS, Driver
from nodeagent.runtime.event_recorder import EventRecorder, PendingEvent, name_events
from nodeagent.runtime.health import HealthBoard
from nodeagent.runtime.metric_set import Metric, Metrics
from nodeagent.runtime.telemetry_server import TelemetryServer, pages
from nodeagent.runtime.triggers import Triggers
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.node.api_servers import find_api_servers
from nodeagent.sources.node.identity import own_names

_LOG = logging.getLogger("nodeagent")

API, NAMES = "api", "coredns"
"""The components of the health page: what is read from the cluster, and what is written for CoreDNS."""

_CHECK_SECONDS = 10.0
"""So often the ConfigMaps are checked."""
_BETWEEN_SECONDS, _LONGEST_SECONDS = 2.0, 60.0
"""Between two passes, however much happens: a burst of Ingresses should cost CoreDNS only one reload. After
writes that follow each other closely, ever longer: kubelets see no more than one change per minute anyway."""


class ControllerSettings(Struct, frozen=True):
    """What the controller was started with.

    `identity` is its name among the others that try to acquire `lease`. `node_name` is any node's: it shows
    which cloud this is. `config_file` is reloaded when it changes; None means all defaults. `telemetry` is
    the address of its pages.
    """

    identity: str
    node_name: str
    lease: ObjectRef
    config_file: Path | None = None
    telemetry: ListenAddress = Config().telemetry.listen
    adopt: bool = False
    timing: LeaseTiming = CLIENT_GO


class Controller:
    """One controller, from start to end (runtime.driver.Work); `config` is as first read.

    `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        config: Config,
        connection: Connection,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._clock = clock
        self.triggers = Triggers()
        self._cluster = Cluster(
            connection,
            settings.node_name,
            config.relay.existing_service,
            on_change=self.triggers.cluster_changed,
        )
        self.elector = LeaderElector(
            connection, settings.lease, settings.identity, self.triggers.wake, settings.timing, clock
        )
        self._reconciler = CoreDnsReconciler(
            connection,
            find_api_servers(servers=[connection.server]),
            self.elector.confirm,
            adopt=settings.adopt,
            clock=clock,
        )
        self._verifier = DnsVerifier(
            ask_upstream(config.hosts),
            config.hosts.dns_recheck_seconds,
            on_change=self.triggers.dns_changed,
            spread_seconds=SPREAD_SECONDS,
        )
        self._board = HealthBoard([API, NAMES])
        self._metrics = coredns_metrics()
        self._events = EventRecorder(connection, settings.identity)
        self._reporter = CoreDnsReporter(self._events)
        self.service = TelemetryServer(
            pages(self._board, self._metrics.exposition),
            settings.telemetry.endpoint,
            own_names(settings.identity),
        )
        self._next_check = self._not_before = 0.0
        self._writes, self._last_write = 0, 0.0
        self.driver = Driver(
            self,
            self.elector,
            self.triggers,
            self._board,
            self._metrics,
            ConfigFile(settings.config_file, config, COREDNS_CONTROLLER),
            clock,
        )

    def start(self) -> None:
        """Serve the pages and watch the cluster."""
        self._cluster.start()  # first: once started, it can be stopped
        self.service.start()
        self._events.start()

    def become_writer(self) -> None:
        """Begin with the ConfigMaps as they are: another controller may have written them."""
        self._reconciler.forget()
        self._next_check = 0.0

    def become_standby(self) -> None:
        """Look up no hostname."""
        self._verifier.want({})

    def reconfigure(self, config: Config) -> None:
        """Use another configuration from the next pass on."""
        self._config = config
        self._verifier.ask_by(ask_upstream(config.hosts), config.hosts.dns_recheck_seconds)
        self._next_check = 0.0

    def seconds_until_pass(self) -> float:
        """Return how long there is no reason for a pass; 0 or less: one is due."""
        if not self._cluster.known:
            return BEAT_SECONDS
        called = self.triggers.waiting() is not None
        return max(self._not_before, 0.0 if called else self._next_check) - self._clock()

    def make_pass(self) -> None:
        """Make one; what fails is reported, and tried again at the next look."""
        snapshot = self._cluster.snapshot()
        if snapshot is None:
            return
        self.triggers.take()
        now = self._clock()
        self._next_check, self._not_before = now + _CHECK_SECONDS, now + _BETWEEN_SECONDS
        try:
            done = self._reconciler.reconcile(snapshot, self._verifier.answers(), self._config)
        except NodeagentError as error:
            self._reporter.failed("pass", [str(error)])
            self.pass_failed(str(error))
            return
        if done.written:
            self._writes = self._writes + 1 if now - self._last_write < 2 * _LONGEST_SECONDS else 1
            self._last_write = now
            self._not_before = now + backoff(self._writes, _BETWEEN_SECONDS, _LONGEST_SECONDS)
        self._verifier.want(done.desired.questions)
        self._reporter.report(done)
        if done.errors:
            self.pass_failed("; ".join(done.errors.values()))
        else:
            served = sum(decision.verdict is Verdict.SERVED for decision in done.desired.names)
            self._metrics.set("last_sync_timestamp_seconds", time.time())
            self._metrics.set("names", served)
            self._board.component_ok(NAMES)
            self._board.synced()

    def pass_failed(self, error: str) -> None:
        """Count it, and show it on the health page."""
        self._metrics.count("pass_failures_total")
        self._board.component_failed(NAMES, error)

    def rest(self) -> None:
        """Report what can't be read: without it no pass begins, or the pass uses what was known."""
        self._reporter.lease_failed(self.elector.error)
        states = [state for state in self._cluster.states() if not state.optional]
        errors = sorted({state.error for state in states if state.error})
        self._reporter.failed("sources", errors)
        if errors:
            self._board.component_failed(API, "; ".join(errors))
        elif all(state.synced for state in states):
            self._board.component_ok(API)

    def stop(self) -> None:
        """End the threads; CoreDNS keeps what it has."""
        self._verifier.stop()
        self._cluster.stop()
        self.service.close()
        _LOG.info("Stopping; nodeagent's entries stay in CoreDNS")


COREDNS_NAME_CODES = frozenset({"WildcardNotAllowed"})
"""What only CoreDNS does not get; the agents report everything else."""


class CoreDnsReporter:
    """Reports the passes of one controller."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._said: dict[str, set[str]] = {"pass": set(), "sources": set()}
        self._before: Desired | None = None
        self._lease_error = ""

    def report(self, done: CoreDnsPass) -> None:
        """Report a pass."""
        served = sum(decision.verdict is Verdict.SERVED for decision in done.edits.decisions)
        for path in done.written:
            fields = {"configmap": path, "names": served, "way": str(done.edits.way)}
            _LOG.info("Wrote a ConfigMap", extra={"fields": fields})
        decided = replace(done.desired, names=done.edits.decisions)
        log_decisions(decided, self._before, changed_names(decided, self._before))
        self._before = decided
        for event in name_events(decided, COREDNS_NAME_CODES):
            self._events.record(event)
        for conflict in done.conflicts:
            text, where = str(conflict), conflict.config_map
            _LOG.warning("Another program reverted the Corefile", extra={"fields": {"reason": text}})
            uid = where.raw["metadata"].get("uid", "")
            self._events.record(PendingEvent(where.ref, "CorefilePutBack", text, uid))
        self.failed("pass", (*done.edits.remarks, *done.errors.values()))

    def failed(self, what: Literal["pass", "sources"], errors: Iterable[str]) -> None:
        """Report what a pass could not do, or what can't be read from the cluster, if it was not yet."""
        now = set(errors)
        for text in sorted(now - self._said[what]):
            _LOG.warning("Could not do everything", extra={"fields": {"reason": text}})
        self._said[what] = now

    def lease_failed(self, error: SourceError | None) -> None:
        """Report what is wrong with the Lease, when it begins and when it ends."""
        text = str(error or "")
        if text and not self._lease_error:
            _LOG.warning("Could not use the Lease", extra={"fields": {"reason": text}})
        elif self._lease_error and not text:
            _LOG.info("Used the Lease again")
        self._lease_error = text


def coredns_metrics() -> Metrics:
    """Return the controller's metrics.

    The names begin with `nodeagent_coredns_`: alerts for agents do not count them, and vice versa.
    """
    sync = "Unix time when CoreDNS's configuration was last in the desired state; 0 if never."
    return Metrics(
        "nodeagent_coredns_",
        [Metric("pass_failures_total", "Total number of passes that failed or left an error.")],
        (
            Metric("leader", "1 if this controller holds the Lease and writes, otherwise 0."),
            Metric("last_sync_timestamp_seconds", sync),
            Metric("names", "Number of hostnames that CoreDNS answers with a relay's address."),
        ),
    )
