"""What the agent counts and measures, and what is computed at each scrape.

The latter costs a pass nothing, and none of its series becomes stale. EFFECTS: only counting.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nodeagent import __version__
from nodeagent.components.component import COMPONENTS
from nodeagent.components.relay.haproxy_sockets import ServerState, Unreachable
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsOutcome
from nodeagent.model.objects import ObjectRef
from nodeagent.runtime.metric_set import Metric, Metrics
from nodeagent.sources.kubernetes.reflector import Coverage
from nodeagent.sources.kubernetes.resources import RESOURCE_NAMES

_COMPONENT = {"component": COMPONENTS}
_RESOURCE = {"resource": RESOURCE_NAMES}

_COUNTERS = (
    Metric(
        "applies_total", "Total number of times that a component was applied, including failures.", _COMPONENT
    ),
    Metric(
        "apply_failures_total", "Total number of times that a component could not be applied.", _COMPONENT
    ),
    Metric("drift_repairs_total", "Total number of repairs of changes that a watcher reported.", _COMPONENT),
    Metric(
        "drift_conflicts_total",
        "Total number of times that another program kept reverting repairs.",
        _COMPONENT,
    ),
    Metric("watch_restarts_total", "Total number of watches that ended and were restarted.", _RESOURCE),
    Metric("relists_total", "Total number of complete lists read after the first one.", _RESOURCE),
    Metric("api_read_bytes_total", "Total number of bytes read in answers of the API server."),
    Metric(
        "dns_names_asked_total",
        "Total number of hostnames looked up in DNS, by outcome.",
        {"outcome": DnsOutcome},
    ),
)
_GAUGES = (
    Metric("writer", "1 if this agent is the writer on its node, otherwise 0."),
    Metric("objects", "Number of objects of the cluster in memory.", _RESOURCE),
    Metric(
        "drift_conflict", "1 while such a conflict lasts and repairs are delayed, otherwise 0.", _COMPONENT
    ),
    Metric(
        "drift_unnoticed",
        "1 if the watch of a component does not run and repairs come late, otherwise 0.",
        _COMPONENT,
    ),
    Metric("relay_notes", "Number of things about the relay that are unreadable or unexpected."),
    Metric(
        "resource_coverage",
        "1 for the state of a resource at the API server, otherwise 0.",
        {**_RESOURCE, "state": Coverage},
    ),
    Metric("api_up", "1 if the API server answered the last request, otherwise 0."),
    Metric(
        "last_sync_timestamp_seconds",
        "Unix time when all components were last in the desired state; 0 if never.",
    ),
    Metric("build_info", "Always 1; the label shows the version of nodeagent.", {"version": (__version__,)}),
)
_HISTOGRAMS = (
    Metric("apply_duration_seconds", "Time in seconds to apply a component, including failures.", _COMPONENT),
    Metric(
        "event_to_applied_seconds",
        "Time in seconds from the arrival of an event until all its changes are applied.",
    ),
)


class AgentMetrics(Metrics, Collector):
    """The agent's metrics; it collects those itself that are computed at each scrape.

    Attributes:
        desired: The plan, whose load balancers and hostnames are counted by state and reason. It is replaced
            in one step: a scrape sees one plan or the next, never a mixture.
        failing_since: Returns the hostnames whose lookups fail, each with the monotonic seconds since when.
        statistics: Asks HAProxy, within a second or two, since a scrape waits for it; None: nodeagent runs
            no HAProxy.
    """

    def __init__(self) -> None:
        self.desired = Desired()
        self.failing_since: Callable[[], Mapping[str, float]] = dict
        self.statistics: Callable[[], tuple[ServerState, ...] | Unreachable] | None = None
        super().__init__("nodeagent_", _COUNTERS, _GAUGES, _HISTOGRAMS, [self])
        self.set("build_info", 1, __version__)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the families that are computed at each scrape."""
        desired, failing = self.desired, self.failing_since()
        # Hostnames that were never verified don't count.
        kept = [failing[one.name] for one in desired.names if one.code == "Kept" and one.name in failing]
        yield _counted(
            "nodeagent_load_balancers",
            "Number of Services of type LoadBalancer, by decision and reason.",
            Counter((decision.status.value, decision.code) for decision in desired.load_balancers),
        )
        yield _counted(
            "nodeagent_names",
            "Number of claimed hostnames, by decision and reason.",
            Counter((decision.status.value, decision.code) for decision in desired.names),
        )
        yield GaugeMetricFamily(
            "nodeagent_unreadable_objects",
            "Number of objects of the cluster that could not be used.",
            value=len(desired.unreadable),
        )
        yield GaugeMetricFamily(
            "nodeagent_dns_kept_seconds",
            "Longest time in seconds that a hostname has been kept without DNS; 0 if there is none.",
            value=time.monotonic() - min(kept) if kept else 0.0,
        )
        planned = {decision.load_balancer for decision in desired.load_balancers}
        yield from _relay_families(self.statistics() if self.statistics else None, planned)


def _counted(name: str, meaning: str, counts: Mapping[tuple[str, str], int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=["state", "reason"])
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family


def _relay_families(
    found: tuple[ServerState, ...] | Unreachable | None, planned: AbstractSet[ObjectRef]
) -> Iterator[GaugeMetricFamily]:
    """Yield HAProxy's view of what is behind the relay; without one, families without samples.

    Only planned load balancers count: an intruder in the relay's container may answer with any others.
    """
    answered = GaugeMetricFamily(
        "nodeagent_relay_up", "1 if the relay's HAProxy returned its statistics, otherwise 0."
    )
    if found is not None:
        answered.add_metric([], 0 if isinstance(found, Unreachable) else 1)
    yield answered
    servers: dict[ObjectRef, list[ServerState]] = {}
    for server in () if found is None or isinstance(found, Unreachable) else found:
        if server.load_balancer in planned:
            servers.setdefault(server.load_balancer, []).append(server)
    for name, meaning, value in _OF_UPSTREAMS:
        family = GaugeMetricFamily(name, meaning, labels=["load_balancer"])
        for load_balancer, its in servers.items():
            family.add_metric([load_balancer.path], value(its))
        yield family


_OF_UPSTREAMS: tuple[tuple[str, str, Callable[[list[ServerState]], int]], ...] = (
    (
        "nodeagent_relay_upstream_up",
        "1 if HAProxy's health checks find every port of the load balancer's Service up, otherwise 0.",
        lambda servers: all(server.up for server in servers),
    ),
    (
        "nodeagent_relay_connections",
        "Number of current connections through the relay.",
        lambda servers: sum(server.connections for server in servers),
    ),
    (
        "nodeagent_relay_rejected_connections",
        "Number of connections that the relay's limits rejected since HAProxy's last reload.",
        lambda servers: sum(server.rejected for server in servers),
    ),
)
