"""What the agent counts and measures, and what is computed of its status at each scrape."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from nodeagent import __version__
from nodeagent.components.component import COMPONENTS
from nodeagent.components.relay.haproxy_sockets import ServerState, Unreachable
from nodeagent.model.desired import Decision
from nodeagent.model.facts import DnsOutcome
from nodeagent.model.objects import ObjectRef
from nodeagent.runtime.metric_set import Family, Metric, Metrics
from nodeagent.runtime.status import Role, Status
from nodeagent.sources.kubernetes.cluster import ResourceState
from nodeagent.sources.kubernetes.reflector import Coverage

_COMPONENT = {"component": COMPONENTS}
_OUTCOME = {"outcome": DnsOutcome}

_COUNTERS = (
    Metric(
        "apply_failures_total", "Total number of times that a component could not be applied.", _COMPONENT
    ),
    Metric("drift_repairs_total", "Total number of repairs of changes that a watcher reported.", _COMPONENT),
    Metric(
        "drift_conflicts_total",
        "Total number of times that another program kept reverting repairs.",
        _COMPONENT,
    ),
    Metric("dns_names_asked_total", "Total number of hostnames looked up in DNS, by outcome.", _OUTCOME),
)
_HISTOGRAMS = (
    Metric("apply_duration_seconds", "Time in seconds to apply a component, including failures.", _COMPONENT),
    Metric(
        "event_to_applied_seconds",
        "Time in seconds from the arrival of an event until all its changes are applied.",
    ),
)


class AgentMetrics(Metrics):
    """The agent's metrics.

    Attributes:
        resources: Returns the states of the watches of the API.
        bytes_read: Returns how much was read in answers of the API server.
        failing_since: Returns the hostnames whose lookups fail, each with the monotonic seconds since when.
        statistics: Asks HAProxy, within a second or two, since a scrape waits for it; None: nodeagent runs
            no HAProxy.
    """

    def __init__(self, status: Status) -> None:
        self.resources: Callable[[], Sequence[ResourceState]] = tuple
        self.bytes_read: Callable[[], int] = int
        self.failing_since: Callable[[], Mapping[str, float]] = dict
        self.statistics: Callable[[], tuple[ServerState, ...] | Unreachable] | None = None
        super().__init__("nodeagent_", status, _COUNTERS, _HISTOGRAMS)

    def collect(self) -> Iterator[Family]:
        """Return the families that are computed at each scrape."""
        yield from super().collect()
        yield from self._of_the_agent()
        yield from self._of_the_api()
        yield from self._of_the_plan()
        planned = {decision.load_balancer for decision in self.status.desired.load_balancers}
        yield from self._of_the_relay(self.statistics() if self.statistics else None, planned)

    def _of_the_agent(self) -> Iterator[Family]:
        status = self.status
        yield self.family(
            "build_info",
            "Always 1; the label shows the version of nodeagent.",
            {(__version__,): 1},
            ["version"],
        )
        yield self.family(
            "writer",
            "1 if this agent is the writer on its node, otherwise 0.",
            {(): status.role is Role.WRITER},
        )
        yield self.family(
            "drift_conflict",
            "1 while such a conflict lasts and repairs are delayed, otherwise 0.",
            {(name,): name in status.conflicts for name in COMPONENTS},
            _COMPONENT,
        )
        yield self.family(
            "failing",
            "1 for each part of the agent that fails, as its page /readyz says, otherwise 0.",
            {(name,): one.state == "failed" for name, one in status.components.items()},
            _COMPONENT,
        )

    def _of_the_api(self) -> Iterator[Family]:
        states = self.resources()
        yield self.family(
            "api_read_bytes_total",
            "Total number of bytes read in answers of the API server.",
            {(): self.bytes_read()},
        )
        numbers: tuple[tuple[str, str, Callable[[ResourceState], int]], ...] = (
            ("objects", "Number of objects of the cluster in memory.", lambda one: one.objects),
            (
                "watch_restarts_total",
                "Total number of watches that ended and were restarted.",
                lambda one: one.restarts,
            ),
            (
                "relists_total",
                "Total number of complete lists read after the first one.",
                lambda one: one.relists,
            ),
        )
        for name, meaning, value in numbers:
            yield self.family(name, meaning, {(state.name,): value(state) for state in states}, ["resource"])
        yield self.family(
            "resource_coverage",
            "1 for the state of a resource at the API server, otherwise 0.",
            {(state.name, each): each is state.coverage for state in states for each in Coverage},
            ["resource", "state"],
        )

    def _of_the_plan(self) -> Iterator[Family]:
        desired, failing = self.status.desired, self.failing_since()
        labels = ("state", "reason")
        # Hostnames that were never verified don't count.
        kept = [failing[one.name] for one in desired.names if one.code == "Kept" and one.name in failing]
        yield self.family(
            "load_balancers",
            "Number of Services of type LoadBalancer, by decision and reason.",
            _by_reason(desired.load_balancers),
            labels,
        )
        yield self.family(
            "names",
            "Number of claimed hostnames, by decision and reason.",
            _by_reason(desired.names),
            labels,
        )
        yield self.family(
            "unreadable_objects",
            "Number of objects of the cluster that could not be used.",
            {(): len(desired.unreadable)},
        )
        yield self.family(
            "dns_kept_seconds",
            "Longest time in seconds that a hostname has been kept without DNS; 0 if there is none.",
            {(): time.monotonic() - min(kept) if kept else 0.0},
        )

    def _of_the_relay(
        self, found: tuple[ServerState, ...] | Unreachable | None, planned: AbstractSet[ObjectRef]
    ) -> Iterator[Family]:
        """Yield HAProxy's view of what is behind the relay; without one, families without samples.

        Only planned load balancers count: an intruder in the relay's container may answer with any others.
        """
        yield self.family(
            "relay_up",
            "1 if the relay's HAProxy returned its statistics, otherwise 0.",
            {} if found is None else {(): not isinstance(found, Unreachable)},
        )
        servers: dict[ObjectRef, list[ServerState]] = {}
        for server in () if found is None or isinstance(found, Unreachable) else found:
            if server.load_balancer in planned:
                servers.setdefault(server.load_balancer, []).append(server)
        for name, meaning, value in _OF_UPSTREAMS:
            samples = {(load_balancer.path,): value(its) for load_balancer, its in servers.items()}
            yield self.family(name, meaning, samples, ["load_balancer"])


def _by_reason(decisions: Iterable[Decision]) -> Mapping[tuple[str, str], int]:
    return Counter((each.status.value, each.code) for each in (one.conclusion for one in decisions))


_OF_UPSTREAMS: tuple[tuple[str, str, Callable[[list[ServerState]], int]], ...] = (
    (
        "relay_upstream_up",
        "1 if HAProxy's health checks find every port of the load balancer's Service up, otherwise 0.",
        lambda servers: all(server.up for server in servers),
    ),
    (
        "relay_connections",
        "Number of current connections through the relay.",
        lambda servers: sum(server.connections for server in servers),
    ),
    (
        "relay_rejected_connections",
        "Number of connections that the relay's limits rejected since HAProxy's last reload.",
        lambda servers: sum(server.rejected for server in servers),
    ),
)
