"""`nodeagent coredns run`: tries to acquire the lease, and keeps CoreDNS's configuration up to date.

The controller reads the ConfigMaps again for every pass, and checks them every few seconds: CoreDNS itself
takes a minute to see a change of its ConfigMap, so a watch would gain nothing. Without the API nothing
changes: CoreDNS continues with what it has.
"""

import logging
import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from nodeagent.agent.dns.verifier import SPREAD_SECONDS, DnsVerifier, ask_upstream
from nodeagent.agent.reporting.event_recorder import name_events
from nodeagent.agent.reporting.health import HealthBoard
from nodeagent.agent.reporting.http_server import Pages, metrics_page, probe_page
from nodeagent.agent.reporting.metrics import CoreDnsMetrics
from nodeagent.agent.reporting.pass_reporter import changed_names, log_decisions
from nodeagent.agent.reporting.service import TelemetryServer
from nodeagent.agent.triggers import Triggers
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.options import Config
from nodeagent.config.reading import COREDNS_CONTROLLER, ConfigFile, reload_config
from nodeagent.coredns.coredns_reconciler import CoreDnsPass, CoreDnsReconciler, OwnerConflict
from nodeagent.coredns.lease import CLIENT_GO, LeaderElector, LeaseName, LeaseTiming
from nodeagent.errors import ConfigError, NodeagentError, SourceError
from nodeagent.model.desired import Desired, Verdict
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.events import EventBudget, post_event
from nodeagent.sources.node.api_servers import find_api_servers
from nodeagent.sources.node.identity import own_names

_LOG = logging.getLogger("nodeagent")

COREDNS_NAME_CODES = frozenset({"WildcardNotAllowed"})
"""What only CoreDNS does not get; the agents report everything else."""


class CoreDnsReporter:
    """Reports each condition when it begins, and not again while it lasts.

    Args:
        connection: To the API server. RBAC: create events.
        identity: The reporter's name.
    """

    def __init__(self, connection: Connection, identity: str) -> None:
        self._connection = connection
        self._identity = identity
        self._budget = EventBudget()
        self._said: set[str] = set()
        self._said_of_sources: set[str] = set()
        self._before: Desired | None = None
        self._lease_trouble = ""

    def tell(self, done: CoreDnsPass) -> None:
        """Report a pass."""
        served = sum(decision.verdict is Verdict.SERVED for decision in done.edits.decisions)
        for path in done.written:
            _LOG.info(
                "Wrote a ConfigMap",
                extra={"fields": {"configmap": path, "names": served, "way": str(done.edits.way)}},
            )
        decided = replace(done.desired, names=done.edits.decisions)
        log_decisions(decided, self._before, changed_names(decided, self._before))
        self._before = decided
        codes = {decision.code for decision in decided.names}
        for one in name_events(decided, codes, COREDNS_NAME_CODES):
            self._post(one.service, one.code, one.message, one.uid)
        for conflict in done.conflicts:
            self._tell_conflict(conflict)
        self._said = _say_once((*done.edits.remarks, *done.errors.values()), self._said)

    def _tell_conflict(self, conflict: OwnerConflict) -> None:
        _LOG.warning("Another program reverted the Corefile", extra={"fields": {"reason": str(conflict)}})
        where = conflict.config_map
        ref = ObjectRef("ConfigMap", where.namespace, where.name)
        self._post(ref, "CorefilePutBack", str(conflict), where.raw["metadata"].get("uid", ""))

    def _post(self, ref: ObjectRef, code: str, message: str, uid: str) -> None:
        if not self._budget.allow((ref, code)):
            return
        failure = post_event(self._connection, ref, code, message, node_name=self._identity, uid=uid or None)
        if failure is not None:
            _LOG.warning("Could not post an Event", extra={"fields": {"reason": str(failure)}})

    def failed(self, error: str) -> None:
        """Report why a pass changed nothing."""
        self._said = _say_once([error], self._said)

    def source_trouble(self, errors: Iterable[str]) -> None:
        """Report what can't be read from the cluster."""
        self._said_of_sources = _say_once(errors, self._said_of_sources)

    def lease_trouble(self, error: SourceError | None) -> None:
        """Report what is wrong with the lease, when it begins and when it ends."""
        text = str(error or "")
        if bool(text) is not bool(self._lease_trouble):
            if text:
                _LOG.warning("Could not use the Lease", extra={"fields": {"reason": text}})
            else:
                _LOG.info("Used the Lease again")
        self._lease_trouble = text


def _say_once(texts: Iterable[str], said: set[str]) -> set[str]:
    """Log the texts that were not logged yet; return those of now."""
    now = set(texts)
    for text in sorted(now - said):
        _LOG.warning("Could not do everything", extra={"fields": {"reason": text}})
    return now


API, NAMES = "api", "coredns"
"""The components of the health page: what is read from the cluster, and what is written for CoreDNS."""
_BEAT_SECONDS = 5.0
_STUMBLE_SECONDS = 10.0


class Pace(Struct, frozen=True):
    """Seconds: how often the actual state is checked, and how far apart passes are, however much happens.

    A change makes CoreDNS reload its configuration: a burst of Ingresses should cost only one reload.
    """

    look: float = 10.0
    between: float = 2.0


class ControllerSettings(Struct, frozen=True):
    """What the controller was started with.

    `identity` is its name among the others that try to acquire `lease`. `node_name` is any node's: it shows
    which cloud this is. `config_file` is reloaded when it changes; None means all defaults. `telemetry` is
    the address of its pages.
    """

    identity: str
    node_name: str
    lease: LeaseName
    config_file: Path | None = None
    telemetry: ListenAddress = Config().telemetry.listen
    adopt: bool = False
    pace: Pace = Pace()
    timing: LeaseTiming = CLIENT_GO


class Controller:
    """One controller, from start to end.

    Args:
        settings: What it was started with.
        config: The configuration as first read.
        connection: To the API server.
    """

    def __init__(self, settings: ControllerSettings, config: Config, connection: Connection) -> None:
        self._settings = settings
        self._config = config
        self._triggers = Triggers()
        self._cluster = Cluster(
            connection,
            settings.node_name,
            config.relay.existing_service,
            on_change=self._triggers.cluster_changed,
            config_maps=config.load_balancers.config_map_names,
        )
        self._elector = LeaderElector(
            connection, settings.lease, settings.identity, self._triggers.wake, settings.timing
        )
        self._reconciler = CoreDnsReconciler(
            connection,
            find_api_servers(servers=[connection.server]),
            self._elector.confirm,
            adopt=settings.adopt,
        )
        self._prover = DnsVerifier(
            ask_upstream(config.hosts),
            config.hosts.dns_recheck_seconds,
            on_change=self._triggers.dns_changed,
            spread_seconds=SPREAD_SECONDS,
        )
        self._board = HealthBoard([API, NAMES])
        self._metrics = CoreDnsMetrics()
        self._reporter = CoreDnsReporter(connection, settings.identity)
        self._config_file = ConfigFile(settings.config_file)
        self._leading = False
        self._last_look = 0.0
        self._stumbled_until = 0.0
        self._ending = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; to be called in the main thread.

        Raises:
            NodeagentError: it can't begin: the telemetry address is not available.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # see __main__.py
        service = TelemetryServer(
            self._pages(),
            self._settings.telemetry.endpoint,
            None,
            names=own_names(self._settings.identity),
        )
        try:
            service.start()
            self._cluster.start()
            self._elector.start()
            while not self._ending:
                self._turn()
        finally:
            # No pass is running any more, so another may get the lease.
            self._elector.stop()
            self._prover.stop()
            self._cluster.stop()
            service.close()
        _LOG.info("Stopping; nodeagent's entries stay in CoreDNS")

    def end(self, *_: object) -> None:
        """Make `run` return soon; may be called from a signal handler."""
        self._ending = True
        self._triggers.wake()

    def _turn(self) -> None:
        """Run one turn of the loop: determine the writer, wait for a reason, make a pass if there is one."""
        self._board.beat()
        if self._config_file.has_changed():
            self._take_over_config()
        self._settle_role()
        self._look_at_sources()
        pause = self._pause()
        if pause > 0:
            self._triggers.wait(min(pause, _BEAT_SECONDS))
            return
        try:
            self._pass()
        except NodeagentError as error:
            self._metrics.failed()
            self._board.component_failed(NAMES, str(error))
            self._reporter.failed(str(error))
        except Exception as error:  # noqa: BLE001 - see below
            # A bug in nodeagent, triggered by some odd object. CoreDNS keeps what it has, the controller
            # continues.
            self._metrics.failed()
            _LOG.exception("Reconcile pass failed; CoreDNS keeps what it has, and the next pass follows soon")
            self._board.component_failed(NAMES, f"{type(error).__name__}: {error}")
            self._stumbled_until = time.monotonic() + _STUMBLE_SECONDS

    def _settle_role(self) -> None:
        leading = self._elector.is_leader
        if leading and not self._leading:
            _LOG.info(
                "Became the leader; this controller writes",
                extra={"fields": {"lease": str(self._settings.lease)}},
            )
            self._board.became_writer()
            self._reconciler.forget()
            self._last_look = 0.0
        elif not leading:
            if self._leading:
                _LOG.warning("Lost the Lease; this controller is on standby")
                self._prover.want({})
            holder = self._elector.holder
            # Before the Lease is seen for the first time, this is not known: starting.
            if holder or self._leading:
                self._board.became_standby(f"{holder or 'no process'} holds {self._settings.lease}")
        self._leading = leading
        self._metrics.leads(leading=leading)
        self._reporter.lease_trouble(self._elector.error)

    def _look_at_sources(self) -> None:
        """Report what can't be read: without it no pass begins, or the pass uses what was known."""
        states = [state for state in self._cluster.states() if not state.optional]
        errors = sorted({state.error for state in states if state.error})
        self._reporter.source_trouble(errors)
        if errors:
            self._board.component_failed(API, "; ".join(errors))
        elif all(state.synced for state in states):
            self._board.component_ok(API)

    def _pause(self) -> float:
        """Seconds until there is a reason for a pass; 0 or less: now."""
        if not self._leading or not self._cluster.known:
            return _BEAT_SECONDS
        now = time.monotonic()
        if now < self._stumbled_until:
            return self._stumbled_until - now
        if not self._last_look:
            return 0.0
        called = self._triggers.waiting() is not None
        return self._last_look + (self._settings.pace.between if called else self._settings.pace.look) - now

    def _pass(self) -> None:
        snapshot = self._cluster.snapshot()
        if snapshot is None:
            return
        self._triggers.take()
        self._board.pass_began()
        try:
            done = self._reconciler.reconcile(snapshot, self._prover.answers(), self._config)
        finally:
            self._board.pass_ended()
            self._last_look = time.monotonic()
        self._prover.want(done.desired.questions)
        self._reporter.tell(done)
        if done.errors:
            self._metrics.failed()
            self._board.component_failed(NAMES, "; ".join(done.errors.values()))
        else:
            served = sum(decision.verdict is Verdict.SERVED for decision in done.desired.names)
            self._metrics.synced(time.time(), served)
            self._board.component_ok(NAMES)
            self._board.synced()

    def _take_over_config(self) -> None:
        try:
            config = reload_config(self._settings.config_file, self._config, COREDNS_CONTROLLER)
        except ConfigError as error:
            _LOG.error(
                "Rejected the configuration; the old one stays active",
                extra={"fields": {"reason": str(error)}},
            )
            return
        _LOG.info("Reloaded the configuration")
        self._config = config
        self._cluster.watch_config_maps(config.load_balancers.config_map_names)
        self._prover.ask_by(ask_upstream(config.hosts), config.hosts.dns_recheck_seconds)
        self._last_look = 0.0

    def _pages(self) -> Pages:
        board = self._board
        return {
            "/healthz": lambda: probe_page(board.alive()),
            "/readyz": lambda: probe_page(board.ready()),
            "/metrics": lambda: metrics_page(self._metrics.exposition()),
        }
