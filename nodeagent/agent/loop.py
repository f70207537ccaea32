"""`nodeagent run`: one thread takes over a new configuration, then makes a pass if one is due or waits."""

import gc
import logging
import signal
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from nodeagent.agent.convergence import clean_up
from nodeagent.agent.node_lock import NodeLock
from nodeagent.agent.reconciler import Reconciler
from nodeagent.agent.reporter import PARTS, PLAN, Reporter
from nodeagent.agent.wake_up import Pace, WakeUp
from nodeagent.components.node import ActualState, build_components
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.options import Config
from nodeagent.config.reading import AGENT, ConfigFile
from nodeagent.dns.verifier import SPREAD_SECONDS, DnsVerifier
from nodeagent.errors import ApplyError, SourceError
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, Snapshot
from nodeagent.observe.event_recorder import EventRecorder
from nodeagent.observe.metrics import CONFIG, AgentMetrics, reload_config
from nodeagent.observe.status import Status, StatusFile, status_path
from nodeagent.observe.telemetry_server import TelemetryServer, pages
from nodeagent.observe.transition_log import TransitionLog, say
from nodeagent.sources.api_servers import ServerLookups, find_api_servers
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.single_requests import is_going
from nodeagent.sources.node import read_facts
from nodeagent.sources.upstream_dns import ask_upstream

_LOG = logging.getLogger("nodeagent")
_POLL_SECONDS = 1.0
"""The longest time between two turns, in which it reports that it is alive, and looks for the node's lock."""
_STUMBLE_SECONDS = 10.0
"""After a pass that raised an error."""


class AgentSettings(Struct, frozen=True):
    """What the agent was started with; no `config_file` means all defaults."""

    node_name: str
    config_file: Path | None = None
    kubeconfig: Path | None = None
    daemonset: ObjectRef | None = None
    telemetry: ListenAddress = Config().telemetry.listen
    adopt: bool = False


class Agent:
    """One agent, from start to end; `config` is the configuration as first read."""

    def __init__(self, settings: AgentSettings, config: Config, connection: Connection) -> None:
        self._settings = settings
        self._config = config
        self._connection = connection
        run_dir = Path(config.relay.run_dir)
        self.wake_up = WakeUp()
        self._status = Status(PARTS)
        self._metrics = AgentMetrics(self._status)
        self._events = EventRecorder(connection, settings.node_name)
        self._reporter = Reporter(self._metrics, self._events)
        self._cluster = Cluster(
            connection,
            settings.node_name,
            config.relay.existing_service,
            hostnames=config.hosts.enabled,
            on_change=self.wake_up.trigger,
        )
        self._status_file = StatusFile(status_path(run_dir), settings.node_name, self._status)
        self._components = build_components(config, adopt=settings.adopt)
        self._verifier = DnsVerifier(
            ask_upstream(config.hosts),
            config.hosts.dns_recheck_seconds,
            on_change=self.wake_up.trigger,
            spread_seconds=SPREAD_SECONDS,
            on_reply=lambda outcome: self._metrics.names_asked.labels(outcome).inc(),
        )
        self._metrics.resources = self._cluster.states
        self._metrics.bytes_read = lambda: connection.bytes_read
        self._metrics.dns = self._verifier.answers
        self.service = TelemetryServer(
            pages(self._status, self._metrics.exposition), settings.telemetry.endpoint
        )
        self._server_lookups = ServerLookups()
        self._pace = Pace()
        self._asked_for = True
        self._settled = False
        self._reconciler = self._new_reconciler()
        self._lock = NodeLock(run_dir)
        self._log = TransitionLog()
        self._config_file = ConfigFile(settings.config_file, config, AGENT)
        self._writing = False
        """Whether this process has the node's lock."""
        self._reload = False
        self._ending = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT, in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(signal.SIGHUP, self.reload)
        # Blocked until now by the manifests' `env` or __main__.py, so that none is lost.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGHUP})
        self.start()
        try:
            while not self._ending:
                self.turn()
        finally:
            self.stop()

    def start(self) -> None:
        """Serve the pages and watch the cluster; `stop` must follow."""
        self._status.report(CONFIG, None)
        self._cluster.start()
        self.service.start()
        if self._config.relay.kind == "node":
            self._metrics.statistics = self._components.relay.statistics
        self._events.start()

    def reload(self, *_: object) -> None:
        """Reload the configuration in the next turn; also a signal's handler."""
        self._reload = True
        self.wake_up.wake()

    def turn(self) -> None:
        """Take over a new configuration; then make a pass if one is due, else wait."""
        self._status.heartbeat()
        self._reload_config()
        self._take_lock()
        pause = self.seconds_until_pass() if self._writing else _POLL_SECONDS
        if pause > 0:
            self._reporter.report_api(self._cluster.states())
            # None while a pass that is due has to wait.
            paced = self._pace.next_at() > time.monotonic()
            descriptors = self._reconciler.descriptors() if self._writing and not paced else ()
            self.wake_up.wait(min(pause, _POLL_SECONDS), descriptors)
            return
        began, cpu = time.monotonic(), time.thread_time()
        try:
            self.make_pass()
        except Exception as error:  # noqa: BLE001 - see below
            # A bug in nodeagent, triggered by some odd object. What exists stays, the process continues.
            _LOG.exception("Reconcile pass failed; nothing else is changed, and the next pass follows soon")
            self._status.report(PLAN, f"{type(error).__name__}: {error}")
            self._begin()
            self._pace.hold(time.monotonic() + _STUMBLE_SECONDS)
        finally:
            self._pace.made(began, time.thread_time() - cpu)

    def _end(self, *_: object) -> None:
        self._ending = True
        self.wake_up.wake()

    def _reload_config(self) -> None:
        at_once, self._reload = self._reload, False
        if not reload_config(self._config_file, self._metrics, at_once=at_once):
            return
        self._config = config = self._config_file.config
        self._components.relay.reserve(Desired())
        self._components = build_components(config, adopt=self._settings.adopt)
        self._verifier.ask_by(ask_upstream(config.hosts), config.hosts.dns_recheck_seconds)
        self._cluster.want_hostnames(wanted=config.hosts.enabled)
        if self._writing:
            self._begin()

    def _take_lock(self) -> None:
        before, reason = self._writing, ""
        try:
            self._writing = self._lock.try_acquire()
            if not self._writing:
                reason = f"process {self._lock.owner} has the node's lock, {self._lock.path}"
        except (ApplyError, OSError) as error:
            self._writing, reason = False, str(error)
        self._status.waits_for = reason
        self._log.problems("Waiting; nothing is changed", {reason: reason} if reason else {}, "reason")
        if self._writing and not before:
            _LOG.info("Became the writer")
            self._status_file.start()
            self._reporter.start_again()
            self._begin()
        if before and not self._writing:
            self._reconciler.stop_watching()
            self._verifier.want({})
            self._components.relay.reserve(Desired())

    def seconds_until_pass(self) -> float:
        """Return how long no pass is due, or it must wait; 0 or less: one is due."""
        if not self._cluster.known:
            return _POLL_SECONDS
        now = time.monotonic()
        if self._asked_for or self.wake_up.triggered or self._reconciler.notice():
            return self._pace.next_at() - now
        due = max(self._reconciler.next_due(), self._pace.next_at())
        return min(due, self._reconciler.next_notice()) - now

    def make_pass(self) -> None:
        """Make one. What wakes it after its beginning asks for another."""
        event_at, self._asked_for = self.wake_up.take(), False
        snapshot = self._cluster.snapshot()
        if snapshot is None:
            return
        done = self._reconciler.reconcile(snapshot)
        self._verifier.want(done.desired.questions)
        self._reporter.report_pass(done, self._reconciler, event_at)
        if not self._settled:
            # All objects that exist now are excluded from later collections: a full one traversed the 70,000
            # of modules alone in 35 ms. A cycle of them is not found when it becomes garbage later.
            self._settled = True
            gc.collect()
            gc.freeze()

    def stop(self) -> None:
        """Leave the node as it is, so that a restart or an upgrade drops nothing; or clean it up."""
        self._cluster.stop()
        self._reconciler.stop_watching()
        # Also before its first turn: an earlier pod's agent may have left something to remove.
        writer = False
        with suppress(ApplyError, OSError):
            writer = self._lock.try_acquire()
        if writer and self._is_leaving_for_good():
            self._reporter.report_clean_up(clean_up(self._components))
        else:
            _LOG.info("Stopping; the node is left as it is")
        self._verifier.stop()
        self.service.close()
        self._status_file.close()
        self._lock.leave()

    def _begin(self) -> None:
        """Make the next pass start from scratch."""
        self._reconciler.stop_watching()
        self._reconciler = self._new_reconciler()
        self._reconciler.start_watching()
        self._asked_for = True

    def _new_reconciler(self) -> Reconciler:
        return Reconciler(
            self._config,
            self._components,
            self._read_facts,
            read_dns=self._verifier.answers,
            adopt=self._settings.adopt,
        )

    def _read_facts(self, snapshot: Snapshot, actual: ActualState, earlier: Facts | None) -> Facts:
        kubeconfigs = [self._settings.kubeconfig] if self._settings.kubeconfig else []
        api = find_api_servers(kubeconfigs, servers=[self._connection.server], lookups=self._server_lookups)
        return read_facts(self._settings.node_name, self._config, snapshot, actual, api, earlier)

    def _is_leaving_for_good(self) -> bool:
        daemonset = self._settings.daemonset
        if daemonset is None:
            return False
        try:
            going = is_going(self._connection, daemonset)
        except SourceError as error:
            message = "Could not check if the DaemonSet was deleted; the node is not cleaned up"
            say(logging.WARNING, message, reason=str(error))
            return False
        if going:
            say(logging.INFO, "Cleaning up because the DaemonSet was deleted", daemonset=str(daemonset))
        return going
