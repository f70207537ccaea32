"""What the agent counts and measures, in methods named for what happened.

EFFECTS: only counting. The only importer of prometheus_client, with collectors.py; it costs 4 MB and
0.07 s to import, so it is imported when the first `Metrics` is made: the daemon pays for it, `nodeagent plan`
does not. Only the text of a scrape leaves this module.

Labels: the values of every label are known beforehand (a component, a resource) or limited (a reason's code,
a load balancer for which the relay has an address). A name, an address or an error's text is never one.
Series with labels known beforehand start at 0: so a rate over them includes the first event.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from nodeagent import __version__
from nodeagent.components.component import COMPONENTS, ComponentName
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsOutcome
from nodeagent.sources.kubernetes.informers import Coverage
from nodeagent.sources.kubernetes.resources import RESOURCE_NAMES

if TYPE_CHECKING:
    from prometheus_client.metrics import MetricWrapperBase

    from nodeagent.agent.reporting.collectors import FailingSince, RelayStatistics

    _Metric = TypeVar("_Metric", bound=MetricWrapperBase)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of `Metrics.exposition`: the format that every Prometheus reads."""

# From one millisecond, about a hosts file's rename, to ten seconds, longer than any wait for HAProxy.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The agent's metrics, on a registry of their own. Its methods may be called from any thread.

    An unknown component or resource raises KeyError: it would be a new, unknown series.
    """

    def __init__(self) -> None:
        import prometheus_client as client  # noqa: PLC0415 - see the module's head

        from nodeagent.agent.reporting.collectors import (  # noqa: PLC0415 - imports prometheus_client too
            DecisionCollector,
            ProofCollector,
            RelayCollector,
        )

        # Without this, every counter and histogram has a second series with the time of its creation, which
        # process_start_time_seconds shows as well. The switch is per process; nothing else here counts.
        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = client.CollectorRegistry()

        def counter(name: str, meaning: str, *labels: str) -> client.Counter:
            return client.Counter(f"nodeagent_{name}", meaning, labels, registry=registry)

        def gauge(name: str, meaning: str, *labels: str) -> client.Gauge:
            return client.Gauge(f"nodeagent_{name}", meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, *labels: str) -> client.Histogram:
            return client.Histogram(f"nodeagent_{name}", meaning, labels, registry=registry, buckets=_SECONDS)

        self._objects = _each(
            gauge("objects", "Number of objects of the cluster in memory.", "resource"), RESOURCE_NAMES
        )
        self._applies = _each(
            counter(
                "applies_total",
                "Total number of times that a component was applied, including failures.",
                "component",
            ),
            COMPONENTS,
        )
        self._failures = _each(
            counter(
                "apply_failures_total",
                "Total number of times that a component could not be applied.",
                "component",
            ),
            COMPONENTS,
        )
        self._apply_seconds = _each(
            histogram(
                "apply_duration_seconds",
                "Time in seconds to apply a component, including failures.",
                "component",
            ),
            COMPONENTS,
        )
        self._latency = histogram(
            "event_to_applied_seconds",
            "Time in seconds from the arrival of an event until all its changes are applied.",
        )
        self._repairs = _each(
            counter(
                "drift_repairs_total",
                "Total number of external changes that nodeagent reverted.",
                "component",
            ),
            COMPONENTS,
        )
        self._conflicts = _each(
            counter(
                "drift_conflicts_total",
                "Total number of times that another program kept reverting repairs.",
                "component",
            ),
            COMPONENTS,
        )
        self._in_conflict = _each(
            gauge(
                "drift_conflict",
                "1 while such a conflict lasts and repairs are delayed, otherwise 0.",
                "component",
            ),
            COMPONENTS,
        )
        self._unnoticed = _each(
            gauge(
                "drift_unnoticed",
                "1 if the watch of a component does not run and repairs come late, otherwise 0.",
                "component",
            ),
            COMPONENTS,
        )
        self._relay_notes = gauge(
            "relay_notes", "Number of things about the relay that are unreadable or unexpected."
        )
        self._watch_restarts = _each(
            counter(
                "watch_restarts_total", "Total number of watches that ended and were restarted.", "resource"
            ),
            RESOURCE_NAMES,
        )
        self._relists = _each(
            counter("relists_total", "Total number of complete lists read after the first one.", "resource"),
            RESOURCE_NAMES,
        )
        coverage = gauge(
            "resource_coverage",
            "1 for the state of a resource at the API server, otherwise 0.",
            "resource",
            "state",
        )
        self._coverage = {
            (name, state): coverage.labels(name, state.value) for name in RESOURCE_NAMES for state in Coverage
        }
        self._covered: dict[str, Coverage] = {}
        self._api_up = gauge("api_up", "1 if the API server answered the last request, otherwise 0.")
        self._api_bytes = counter(
            "api_read_bytes_total", "Total number of bytes read in answers of the API server."
        )
        self._last_sync = gauge(
            "last_sync_timestamp_seconds",
            "Unix time when all components were last in the desired state; 0 if never.",
        )
        self._writer = gauge("writer", "1 if this agent is the writer on its node, otherwise 0.")
        self._reloads = _each(
            counter("config_reloads_total", "Total number of configuration reloads, by result.", "result"),
            ("ok", "rejected"),
        )
        self._dns_asked = _each(
            counter(
                "dns_names_asked_total", "Total number of hostnames looked up in DNS, by outcome.", "outcome"
            ),
            tuple(DnsOutcome),
        )
        build = gauge("build_info", "Always 1; the label shows the version of nodeagent.", "version")
        build.labels(__version__).set(1)
        self._decisions = DecisionCollector()
        registry.register(self._decisions)
        self._proof = ProofCollector(self._decisions)
        registry.register(self._proof)
        self._relay = RelayCollector()
        registry.register(self._relay)
        client.ProcessCollector(registry=registry)
        self._registry = registry
        self._generate = client.generate_latest

    def objects_seen(self, resource: str, count: int) -> None:
        """Set the number of the resource's objects that are held now."""
        self._objects[resource].set(count)

    def covered(self, resource: str, coverage: Coverage) -> None:
        """Note what the API server provides of the resource now."""
        if self._covered.get(resource) is not coverage:
            self._covered[resource] = coverage
            for state in Coverage:
                self._coverage[resource, state].set(state is coverage)

    def decided(self, desired: Desired) -> None:
        """Set the current plan; it is counted when it is collected, not now."""
        self._decisions.desired = desired

    def applied(self, component: ComponentName, seconds: float) -> None:
        """Note that the component succeeded in `seconds`, whether or not there was anything to change."""
        self._applies[component].inc()
        self._apply_seconds[component].observe(seconds)

    def apply_failed(self, component: ComponentName, seconds: float) -> None:
        """Note that the component failed after `seconds`."""
        self._failures[component].inc()
        self.applied(component, seconds)

    def event_applied(self, seconds: float) -> None:
        """Note that all that an event changed is applied, `seconds` after it arrived."""
        self._latency.observe(seconds)

    def repaired(self, component: ComponentName) -> None:
        """Count an external change to the component that was reverted."""
        self._repairs[component].inc()

    def conflict_began(self, component: ComponentName) -> None:
        """Note that another program keeps reverting the component. Call it once per conflict."""
        self._conflicts[component].inc()
        self._in_conflict[component].set(1)

    def conflict_ended(self, component: ComponentName) -> None:
        """Note that the other program gave up, or was stopped."""
        self._in_conflict[component].set(0)

    def unnoticed(self, component: ComponentName, *, missing: bool) -> None:
        """Set whether the component should be watched for external changes, and is not."""
        self._unnoticed[component].set(int(missing))

    def relay_noted(self, count: int) -> None:
        """Set the number of notes about the relay's state as it was last read."""
        self._relay_notes.set(count)

    def watch_restarted(self, resource: str) -> None:
        """Count a watch that ended, for whatever reason, and is restarted."""
        self._watch_restarts[resource].inc()

    def relisted(self, resource: str) -> None:
        """Count a complete list that was read again."""
        self._relists[resource].inc()

    def api_answered(self) -> None:
        """Note that the API server answered a request as expected."""
        self._api_up.set(1)

    def api_lost(self) -> None:
        """Note that the API server did not answer, or denied the request (401, 403, 5xx)."""
        self._api_up.set(0)

    def api_read(self, count: int) -> None:
        """Set how many bytes of the API server's answers were read."""
        self._api_bytes.inc(count)

    def synced(self, at: float) -> None:
        """Note that all components were in the desired state at `at`, in seconds since the epoch."""
        self._last_sync.set(at)

    def became_writer(self) -> None:
        """Note that this agent writes on the node from now on."""
        self._writer.set(1)

    def became_standby(self) -> None:
        """Note that another agent writes on the node."""
        self._writer.set(0)

    def config_reloaded(self) -> None:
        """Count a configuration that was reloaded and is active."""
        self._reloads["ok"].inc()

    def config_rejected(self) -> None:
        """Count a new configuration that was rejected; the old one stays active."""
        self._reloads["rejected"].inc()

    def dns_asked(self, outcome: DnsOutcome) -> None:
        """Count a lookup of a hostname in DNS by its outcome."""
        self._dns_asked[outcome].inc()

    def watch_dns(self, failing_since: "FailingSince") -> None:
        """Compute the age of kept verifications from this function's result at each scrape from now on."""
        self._proof.failing_since = failing_since

    def watch_relay(self, statistics: "RelayStatistics | None") -> None:
        """Ask HAProxy by `statistics` at each scrape from now on; None: nodeagent runs no HAProxy."""
        self._relay.statistics = statistics

    def exposition(self) -> bytes:
        """Return all metrics as text, in the format that CONTENT_TYPE names."""
        return self._generate(self._registry)


_Value = TypeVar("_Value", bound=str)


def _each(metric: "_Metric", values: Iterable[_Value]) -> "dict[_Value, _Metric]":
    """Return the metric's series for each of the label values, made now so that they start at 0."""
    return {value: metric.labels(value) for value in values}


class CoreDnsMetrics:
    """The controller's metrics, on a registry of their own. Its methods may be called from any thread.

    The names begin with `nodeagent_coredns_`: alerts for agents do not count them, and vice versa.
    """

    def __init__(self) -> None:
        import prometheus_client as client  # noqa: PLC0415 - see this module's head

        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = client.CollectorRegistry()

        def gauge(name: str, meaning: str) -> client.Gauge:
            return client.Gauge(f"nodeagent_coredns_{name}", meaning, registry=registry)

        self._leader = gauge("leader", "1 if this controller holds the Lease and writes, otherwise 0.")
        self._last_sync = gauge(
            "last_sync_timestamp_seconds",
            "Unix time when CoreDNS's configuration was last in the desired state; 0 if never.",
        )
        self._names = gauge("names", "Number of hostnames that CoreDNS answers with a relay's address.")
        self._failures = client.Counter(
            "nodeagent_coredns_pass_failures_total",
            "Total number of passes that failed or left an error.",
            registry=registry,
        )
        client.ProcessCollector(registry=registry)
        self._registry = registry
        self._generate = client.generate_latest

    def leads(self, *, leading: bool) -> None:
        """Note whether it holds the lease."""
        self._leader.set(leading)

    def synced(self, at: float, names: int) -> None:
        """Note that all is in the desired state at `at` (seconds since the epoch), with so many hostnames."""
        self._last_sync.set(at)
        self._names.set(names)

    def failed(self) -> None:
        """Count a pass that failed, or a part of which failed."""
        self._failures.inc()

    def exposition(self) -> bytes:
        """Return all metrics as text, in the format that metrics.CONTENT_TYPE names."""
        return self._generate(self._registry)
