"""`nodeagent run`: waits for a reason, makes a pass, reports it; and how it begins and ends."""

import gc
import logging
import signal
import time
from pathlib import Path

from msgspec import Struct

from nodeagent.agent.convergence import clean_up
from nodeagent.agent.dns.verifier import SPREAD_SECONDS, DnsVerifier, ask_upstream
from nodeagent.agent.drift.node_watch import NodeWatch
from nodeagent.agent.node_context import NodeContext, read_node_context
from nodeagent.agent.reconciler import Reconciler
from nodeagent.agent.reporting.event_recorder import EventRecorder
from nodeagent.agent.reporting.health import DRIFT, HealthBoard
from nodeagent.agent.reporting.http_server import pages
from nodeagent.agent.reporting.metrics import Metrics
from nodeagent.agent.reporting.pass_reporter import PLAN, PassReporter
from nodeagent.agent.reporting.probe_files import ProbeFiles
from nodeagent.agent.reporting.service import TelemetryServer
from nodeagent.agent.reporting.status_file import StatusFile
from nodeagent.agent.reporting.watch_status import API, ApiState, WatcherHealth
from nodeagent.agent.triggers import Triggers, seconds_until_pass
from nodeagent.agent.writer.writer_election import WriterElection
from nodeagent.components.component import COMPONENTS
from nodeagent.components.node import ActualState, build_components
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.options import Config
from nodeagent.config.reading import AGENT, ConfigFile, reload_config
from nodeagent.errors import ConfigError, SourceError
from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes.cluster import Cluster
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.workloads import OwnDaemonSet, is_going
from nodeagent.sources.node.api_servers import ServerLookups, find_api_servers
from nodeagent.sources.node.identity import own_names

_LOG = logging.getLogger("nodeagent")

_BEAT_SECONDS = 5.0
_STUMBLE_SECONDS = 10.0
# Events report drift. What no event reports (such as a relay that stopped answering) is checked rarely.
_EVERYTHING_SECONDS = 600.0


class DaemonSettings(Struct, frozen=True):
    """What the daemon was started with.

    `config_file` is reloaded when it changes and on SIGHUP; None means all defaults. `telemetry` is the
    address of the agent's pages. `adopt`: hairpin-proxy's lines of the hosts file are taken over.
    `probe_dir`: where the files for the DaemonSet's probes are written, if there are any.
    """

    node_name: str
    config_file: Path | None = None
    kubeconfig: Path | None = None
    daemonset: OwnDaemonSet | None = None
    telemetry: ListenAddress = Config().telemetry.listen
    adopt: bool = False
    probe_dir: Path | None = None


class Daemon:
    """One agent, from start to end.

    Args:
        settings: What it was started with.
        config: The configuration as first read.
        connection: To the API server.
    """

    def __init__(self, settings: DaemonSettings, config: Config, connection: Connection) -> None:
        self._settings = settings
        self._config = config
        self._connection = connection
        self._triggers = Triggers()
        self._metrics = Metrics()
        self._board = HealthBoard([API, PLAN, *sorted(COMPONENTS), DRIFT])
        self._api = ApiState(connection, self._metrics, self._board)
        self._noticing = WatcherHealth(self._metrics, self._board)
        self._events = EventRecorder(connection, settings.node_name)
        self._reporter = PassReporter(self._metrics, self._board, self._events)
        relay = config.relay
        self._cluster = Cluster(
            connection,
            settings.node_name,
            relay.existing_service,
            on_change=self._triggers.cluster_changed,
            config_maps=config.load_balancers.config_map_names,
        )
        self._run_dir = Path(relay.run_dir)
        self._status_file = StatusFile(self._run_dir, settings.node_name, self._board)
        self._ownership = WriterElection(self._run_dir, self._triggers.wake)
        self._components = build_components(config, adopt=settings.adopt)
        self._probe_files = None
        if settings.probe_dir is not None:
            looks = self._components.relay.answers if relay.kind == "node" else None
            self._probe_files = ProbeFiles(settings.probe_dir, self._board, looks)
        self._prover = DnsVerifier(
            ask_upstream(config.hosts),
            config.hosts.dns_recheck_seconds,
            on_change=self._triggers.dns_changed,
            spread_seconds=SPREAD_SECONDS,
            on_reply=self._metrics.dns_asked,
        )
        self._metrics.watch_dns(self._prover.failing_since)
        self._reconciler: Reconciler | None = None
        self._watch: NodeWatch | None = None
        self._last_pass = (0.0, 0.0)
        self._last_everything = 0.0
        self._stumbled_until = 0.0
        self._server_lookups = ServerLookups()
        self._config_file = ConfigFile(settings.config_file)
        self._ending = False
        self._reload = False

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; to be called in the main thread.

        Raises:
            NodeagentError: it can't begin: the run directory or the telemetry address is not available.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_end)
        signal.signal(signal.SIGHUP, self._on_reload)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # see __main__.py
        service = TelemetryServer(
            pages(self._board, self._metrics),
            self._settings.telemetry.endpoint,
            self._run_dir,
            names=own_names(self._settings.node_name),
        )
        self._ownership.start()
        try:
            service.start()
            if self._probe_files is not None:
                self._probe_files.start()
            if self._config.relay.kind == "node":
                self._metrics.watch_relay(self._components.relay.statistics)
            self._events.start()
            self._cluster.start()
            while not self._ending:
                self._turn()
            self._end()
        finally:
            self._prover.stop()
            service.close()
            if self._probe_files is not None:
                self._probe_files.close()
            self._status_file.remove()
            self._ownership.stop()
        self._drain_relay()

    def _on_end(self, *_: object) -> None:
        self._ending = True
        self._triggers.wake()

    def _on_reload(self, *_: object) -> None:
        self._reload = True
        self._triggers.wake()

    def _turn(self) -> None:
        """Run one turn of the loop: determine the writer, wait for a reason, make a pass if there is one."""
        self._board.beat()
        if self._config_file.has_changed(at_once=self._reload) or self._reload:
            self._reload = False
            self._take_over_config()
        self._settle_role()
        pause = self._pause()
        if pause > 0:
            # Between two passes there is always a pause: no event waits for this.
            self._api.update(self._cluster.states())
            self._keep_watching()
            self._status_file.keep()
            self._triggers.wait(min(pause, _BEAT_SECONDS))
            return
        try:
            self._pass()
        except Exception as error:  # noqa: BLE001 - see below
            # A bug in nodeagent, triggered by some odd object. The node keeps what it has, the agent
            # continues.
            _LOG.exception(
                "Reconcile pass failed; the node keeps what it has, and the next pass follows soon"
            )
            self._board.component_failed(PLAN, f"{type(error).__name__}: {error}")
            self._stumbled_until = time.monotonic() + _STUMBLE_SECONDS
            # The triggers of this pass are already taken: the next one is a full resync.
            self._last_everything = 0.0

    def _settle_role(self) -> None:
        self._ownership.release_if_superseded()
        if self._ownership.is_writer and self._reconciler is None:
            self._become_writer()
        elif not self._ownership.is_writer and self._reconciler is not None:
            _LOG.info("A newer agent took over; this one is on standby")
            self._metrics.became_standby()
            self._board.became_standby("a newer agent writes on this node")
            self._stop_watching()
            self._prover.want({})
            self._components.relay.release()
            self._reconciler = None
        elif not self._ownership.is_writer:
            self._board.became_standby("another agent writes on this node")

    def _become_writer(self) -> None:
        _LOG.info("Became the writer on the node")
        self._metrics.became_writer()
        self._board.became_writer()
        self._reporter.start_again()
        self._start_working()

    def _start_working(self) -> None:
        settings = self._settings
        self._reconciler = Reconciler(
            settings.node_name,
            self._config,
            self._components,
            self._read_node_context,
            read_dns=self._prover.answers,
            adopt=settings.adopt,
        )
        self._start_watching()
        self._last_everything = 0.0

    def _start_watching(self) -> None:
        self._watch = NodeWatch(self._config, self._components.dnat.backend, self._triggers.drifted)
        self._watch.start()

    def _keep_watching(self) -> None:
        """Retry the watches that failed; report them, and the notes of the relay's last reading."""
        if self._watch is None or self._reconciler is None:
            self._noticing.update(())
            return
        self._watch.start()
        self._noticing.update(self._watch.states(), self._reconciler.relay_notes)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _pause(self) -> float:
        """Seconds until there is a reason for a pass; 0 or less: now."""
        if self._reconciler is None or not self._cluster.known:
            return _BEAT_SECONDS
        now = time.monotonic()
        if now < self._stumbled_until:
            return self._stumbled_until - now
        times = [self._last_everything + _EVERYTHING_SECONDS - now] if self._last_everything else [0.0]
        due = self._reconciler.next_due()
        if due is not None:
            times.append(due - now)
        waiting = self._triggers.waiting()
        if waiting is not None:
            times.append(seconds_until_pass(waiting, self._last_pass, now))
        return min(times)

    def _pass(self) -> None:
        reconciler, watch = self._reconciler, self._watch
        if reconciler is None or watch is None:
            return
        began = time.monotonic()
        everything = not self._last_everything or began - self._last_everything >= _EVERYTHING_SECONDS
        self._board.pass_began()
        try:
            with watch.own_changes():
                calls = self._triggers.take()
                snapshot = self._cluster.snapshot()
                if snapshot is None:
                    return
                done = reconciler.reconcile(snapshot, calls.drift, everything=everything)
                watch.settle(done.left)
                self._prover.want(done.desired.questions)
        finally:
            self._board.pass_ended()
            self._last_pass = (began, time.monotonic())
        if watch.dnat_backend != self._components.dnat.backend:  # one that was missing exists now
            self._stop_watching()
            self._start_watching()
        first = not self._last_everything
        if everything:
            self._last_everything = began
        self._reporter.of_pass(done, calls, reconciler)
        self._status_file.of_pass(done.desired, self._reporter.names, reconciler.conflicting)
        if first:
            spare_what_stays()

    def _read_node_context(self, snapshot: Snapshot, actual: ActualState) -> NodeContext:
        kubeconfigs = [self._settings.kubeconfig] if self._settings.kubeconfig else []
        api = find_api_servers(kubeconfigs, servers=[self._connection.server], lookups=self._server_lookups)
        return read_node_context(self._config, snapshot, actual, api)

    def _take_over_config(self) -> None:
        try:
            config = reload_config(self._settings.config_file, self._config, AGENT)
        except ConfigError as error:
            _LOG.error(
                "Rejected the configuration; the old one stays active",
                extra={"fields": {"reason": str(error)}},
            )
            self._metrics.config_rejected()
            return
        _LOG.info("Reloaded the configuration")
        self._metrics.config_reloaded()
        self._config = config
        self._cluster.watch_config_maps(config.load_balancers.config_map_names)
        self._components.relay.release()
        self._components = build_components(config, adopt=self._settings.adopt)
        hosts = config.hosts
        self._prover.ask_by(ask_upstream(hosts), hosts.dns_recheck_seconds)
        if self._reconciler is not None:
            self._stop_watching()
            self._start_working()

    def _end(self) -> None:
        """Leave the node as it is, so that a restart or an upgrade drops nothing; or clean it up."""
        self._cluster.stop()
        self._stop_watching()
        if self._reconciler is None or not self._is_leaving_for_good():
            _LOG.info("Stopping; the node is left as it is")
            return
        done = clean_up(self._components)
        for change in done.changes:
            for line in change.text.splitlines():
                _LOG.info(
                    "Cleaned up a component",
                    extra={"fields": {"component": change.component, "change": line}},
                )
        for component, reason in done.errors.items():
            _LOG.error(
                "Could not clean up a component", extra={"fields": {"component": component, "reason": reason}}
            )

    def _drain_relay(self) -> None:
        """Stay for the connections of this pod's relay, if that ends, too. Another agent may write by now."""
        if self._settings.daemonset is None or self._config.relay.kind != "node":
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for look in self._components.relay.drain():
            if look.closed:
                fields = {"closed": look.closed, "left": look.left}
                _LOG.info("Closed idle connections of the ending relay", extra={"fields": fields})

    def _is_leaving_for_good(self) -> bool:
        daemonset = self._settings.daemonset
        if daemonset is None:
            return False
        try:
            going = is_going(self._connection, daemonset)
        except SourceError as error:
            fields = {"reason": str(error)}
            _LOG.warning(
                "Could not check if the DaemonSet was deleted; the node is not cleaned up",
                extra={"fields": fields},
            )
            return False
        if going:
            _LOG.info(
                "Cleaning up because the DaemonSet was deleted",
                extra={"fields": {"daemonset": str(daemonset)}},
            )
        return going


def spare_what_stays() -> None:
    """Exclude all objects that exist now from later collections; call it after the first pass.

    Modules alone are 70,000 objects. A full collection traversed all of them in 35 ms, at 1,000 hostnames in
    the middle of three passes of a hundred (docs/performance.md). An object is still freed when nothing
    refers to it any more; only a cycle of objects that exist now is not found when it becomes garbage later.
    """
    gc.collect()
    gc.freeze()
