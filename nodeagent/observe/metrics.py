"""What a process counts and measures, and what is computed of its status at each scrape.

The values of every label are known beforehand, or limited: never a hostname, an address or an error's text.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar

import msgspec
import prometheus_client as client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from nodeagent import __version__
from nodeagent.components.component import COMPONENTS
from nodeagent.components.relay.haproxy_sockets import ServerState, Unreachable
from nodeagent.config.reading import ConfigFile
from nodeagent.errors import ConfigError
from nodeagent.model.decisions import Decision
from nodeagent.model.facts import DnsAnswer, DnsOutcome
from nodeagent.observe.status import RejectedConfig, Status
from nodeagent.observe.transition_log import say
from nodeagent.sources.kubernetes.cluster import ResourceState
from nodeagent.sources.kubernetes.fail_static import KindState

# From one millisecond, about a hosts file's rename, to ten seconds, longer than any wait for HAProxy.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_HELP = {
    "config_reloads_total": "Total number of configuration reloads, by result.",
    "last_sync_timestamp_seconds": "Unix time when everything was last in the desired state; 0 if never.",
    "apply_failures_total": "Total number of times that a component could not be applied.",
    "drift_repairs_total": "Total number of repairs of changes that a watcher reported.",
    "dns_names_asked_total": "Total number of hostnames looked up in DNS, by outcome.",
    "apply_duration_seconds": "Time in seconds to apply a component, including failures.",
    "event_to_applied_seconds": "Time in seconds from the arrival of an event until all its changes are "
    "applied.",
    "build_info": "Always 1; the label shows the version of nodeagent.",
    "drift_conflict": "1 while another program keeps reverting the component and repairs are delayed, "
    "otherwise 0.",
    "failing": "1 for each part of the agent that fails, as on its /readyz page, otherwise 0.",
    "api_read_bytes_total": "Total number of bytes read from the API server.",
    "objects": "Number of the cluster's objects in memory.",
    "watch_restarts_total": "Total number of watches that ended and were restarted.",
    "relists_total": "Total number of complete lists read after the first one.",
    "resource_coverage": "1 for the state a resource is in, otherwise 0.",
    "load_balancers": "Number of Services of type LoadBalancer, by decision and reason.",
    "names": "Number of claimed hostnames, by decision and reason.",
    "unreadable_objects": "Number of the cluster's objects that could not be used.",
    "dns_kept_seconds": "Longest time in seconds that a hostname has been kept without DNS; 0 if there is "
    "none.",
    "relay_up": "1 if the relay's HAProxy returned its statistics, otherwise 0.",
    "relay_info": "Always 1; the labels show the relay pod at which new connections arrive, and its HAProxy.",
    "relay_upstream_up": "1 if HAProxy's health checks find every port of the load balancer's Service up, "
    "otherwise 0.",
    "relay_connections": "Number of current connections through the relay.",
    "relay_rejected_connections": "Number of connections that the relay's limits rejected since HAProxy's "
    "last reload.",
}
"""Every metric, with its HELP."""

CONFIG = "config"
"""In the status, next to the components: a configuration that was rejected."""
Family = CounterMetricFamily | GaugeMetricFamily
_Metric = TypeVar("_Metric", client.Counter, client.Histogram)


class Metrics(Collector):
    """One process's metrics; a `family` is computed at each scrape, so no series becomes stale."""

    def __init__(self, prefix: str, status: Status) -> None:
        # Or every counter and histogram has a second series with the time of its creation.
        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.status = status
        self._prefix = prefix
        self._registry = client.CollectorRegistry()
        self._registry.register(self)
        client.ProcessCollector(registry=self._registry)
        self.config_reloads = self.counter("config_reloads_total", result=("ok", "rejected"))

    def counter(self, name: str, **labels: Iterable[str]) -> client.Counter:
        """Add what only grows; `labels` have all their values."""
        counter = client.Counter(self._prefix + name, _HELP[name], [*labels], registry=self._registry)
        return _from_zero(counter, labels)

    def histogram(self, name: str, **labels: Iterable[str]) -> client.Histogram:
        """Add durations."""
        histogram = client.Histogram(
            self._prefix + name, _HELP[name], [*labels], registry=self._registry, buckets=_SECONDS
        )
        return _from_zero(histogram, labels)

    def family(self, name: str, samples: Mapping[Any, float], *labels: str) -> Family:
        """Return one metric with samples by their labels' values: a counter if its name ends in _total."""
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(self._prefix + name, _HELP[name], labels=labels)
        for values, value in samples.items():
            family.add_metric(values, value)
        return family

    def exposition(self) -> bytes:
        """Return all metrics as text."""
        return client.generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        """Return the families that are computed at each scrape."""
        synced_at = self.status.synced_at
        unix_time = 0.0 if synced_at is None else time.time() - (time.monotonic() - synced_at)
        yield self.family("last_sync_timestamp_seconds", {(): unix_time})


def _from_zero(metric: _Metric, labels: Mapping[str, Iterable[str]]) -> _Metric:
    """Give it all its series, at 0, so that a rate over one includes the first event."""
    for values in product(*labels.values()) if labels else ():
        metric.labels(*values)
    return metric


def reload_config(file: ConfigFile, metrics: Metrics, *, at_once: bool) -> bool:
    """Reload a configuration that has changed, or `at_once`, and report it; return whether it is active."""
    status, rejected = metrics.status, ""
    try:
        if not file.reload(at_once=at_once):
            return False
    except ConfigError as error:
        rejected = str(error)
        say(logging.ERROR, "Rejected the configuration; the old one stays active", reason=rejected)
    else:
        say(logging.INFO, "Reloaded the configuration")
    metrics.config_reloads.labels("rejected" if rejected else "ok").inc()
    status.report(CONFIG, rejected or None)
    active = msgspec.json.encode(file.config, enc_hook=str).decode()
    status.rejected = RejectedConfig(str(file.path), rejected, active) if rejected else None
    return not rejected


class AgentMetrics(Metrics):
    """The agent's metrics; `statistics` asks HAProxy within two seconds, None if nodeagent runs none."""

    def __init__(self, status: Status) -> None:
        super().__init__("nodeagent_", status)
        self.resources: Callable[[], Sequence[ResourceState]] = tuple
        self.bytes_read: Callable[[], int] = int
        self.dns: Callable[[], Mapping[str, DnsAnswer]] = dict
        self.statistics: Callable[[], tuple[ServerState, ...] | Unreachable] | None = None
        self.apply_failures = self.counter("apply_failures_total", component=COMPONENTS)
        self.drift_repairs = self.counter("drift_repairs_total", component=COMPONENTS)
        self.names_asked = self.counter("dns_names_asked_total", outcome=DnsOutcome)
        self.apply_seconds = self.histogram("apply_duration_seconds", component=COMPONENTS)
        self.event_to_applied = self.histogram("event_to_applied_seconds")

    def collect(self) -> Iterator[Family]:
        """Return the families that are computed at each scrape."""
        yield from super().collect()
        status, states, relay = self.status, self.resources(), self.status.relay
        conflicts = {(name,): name in status.conflicts for name in COMPONENTS}
        failing = {(name,): component.state == "failed" for name, component in status.components.items()}
        yield self.family("build_info", {(__version__,): 1}, "version")
        yield self.family("drift_conflict", conflicts, "component")
        yield self.family("failing", failing, "component")
        yield self.family("api_read_bytes_total", {(): self.bytes_read()})
        yield self.family("objects", {(state.name,): state.objects for state in states}, "resource")
        yield self.family(
            "watch_restarts_total", {(state.name,): state.restarts for state in states}, "resource"
        )
        yield self.family("relists_total", {(state.name,): state.relists for state in states}, "resource")
        coverage = {(state.name, value): value is state.state for state in states for value in KindState}
        yield self.family("resource_coverage", coverage, "resource", "state")
        yield from self._of_the_plan()
        statistics = self.statistics() if self.statistics else None
        up = {} if statistics is None else {(): not isinstance(statistics, Unreachable)}
        yield self.family("relay_up", up)
        serving = {(relay.pod, relay.version): 1} if relay.version else {}
        yield self.family("relay_info", serving, "pod", "version")
        yield from self._of_upstreams(statistics if isinstance(statistics, tuple) else ())

    def _of_the_plan(self) -> Iterator[Family]:
        desired, dns = self.status.desired, self.dns()
        # Hostnames that were never verified don't count.
        answers = [dns[name.name] for name in desired.names if name.code == "Kept" and name.name in dns]
        since = [answer.failing_since for answer in answers if answer.failing_since is not None]
        yield self.family("load_balancers", _by_reason(desired.load_balancers), "state", "reason")
        yield self.family("names", _by_reason(desired.names), "state", "reason")
        yield self.family("unreadable_objects", {(): len(desired.unreadable)})
        yield self.family("dns_kept_seconds", {(): time.monotonic() - min(since) if since else 0.0})

    def _of_upstreams(self, servers: tuple[ServerState, ...]) -> Iterator[Family]:
        """Yield HAProxy's view of planned load balancers; an intruder in its container may name others."""
        by_path: dict[str, list[ServerState]] = {}
        planned = {decision.load_balancer for decision in self.status.desired.load_balancers}
        for server in servers:
            if server.load_balancer in planned:
                by_path.setdefault(server.load_balancer.path, []).append(server)
        up = {(path,): all(state.up for state in own) for path, own in by_path.items()}
        connections = {(path,): sum(state.connections for state in own) for path, own in by_path.items()}
        rejected = {(path,): sum(state.rejected for state in own) for path, own in by_path.items()}
        yield self.family("relay_upstream_up", up, "load_balancer")
        yield self.family("relay_connections", connections, "load_balancer")
        yield self.family("relay_rejected_connections", rejected, "load_balancer")


def _by_reason(decisions: Iterable[Decision]) -> Mapping[tuple[str, str], int]:
    return Counter(
        (conclusion.status.value, conclusion.code)
        for conclusion in (decision.conclusion for decision in decisions)
    )
