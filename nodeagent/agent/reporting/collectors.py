"""Series that are computed at each scrape, so that a pass costs nothing and none becomes stale."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily

from nodeagent.components.relay.haproxy_sockets import ServerState, Unreachable
from nodeagent.model.desired import Desired
from nodeagent.model.objects import ObjectRef

RelayStatistics = Callable[[], tuple[ServerState, ...] | Unreachable]
"""Asks HAProxy; must answer within a second or two, since a scrape waits for it."""

FailingSince = Callable[[], Mapping[str, float]]
"""Returns the hostnames whose lookups fail, each with the monotonic seconds since when."""


class DecisionCollector:
    """Load balancers and hostnames by state and reason, of the plan that was set last.

    The whole plan is replaced in one step: a scrape sees one plan or the next, never a mixture, and a
    combination that no longer exists leaves no series behind.
    """

    def __init__(self) -> None:
        self.desired = Desired()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the families without samples, for the registry's check of names."""
        return self._families(Desired())

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the families of the plan as it is now."""
        return self._families(self.desired)

    def _families(self, desired: Desired) -> Iterator[GaugeMetricFamily]:
        yield _counted(
            "nodeagent_load_balancers",
            "Number of Services of type LoadBalancer, by decision and reason.",
            Counter((decision.verdict.value, decision.code) for decision in desired.load_balancers),
        )
        yield _counted(
            "nodeagent_names",
            "Number of claimed hostnames, by decision and reason.",
            Counter((decision.verdict.value, decision.code) for decision in desired.names),
        )
        yield GaugeMetricFamily(
            "nodeagent_unreadable_objects",
            "Number of objects of the cluster that could not be used.",
            value=len(desired.unreadable),
        )


class ProofCollector:
    """How long hostnames have been kept while their lookups fail.

    Args:
        decisions: Knows the current plan: hostnames that were never verified don't count.
        clock: The clock of `failing_since`.
    """

    def __init__(self, decisions: DecisionCollector, clock: Callable[[], float] = time.monotonic) -> None:
        self._decisions = decisions
        self._clock = clock
        self.failing_since: FailingSince = dict

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the family, with nothing kept."""
        return [_kept_seconds(0.0)]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the family as it is now."""
        failing = self.failing_since()
        names = self._decisions.desired.names if failing else ()
        since = [failing[one.name] for one in names if one.code == "Kept" and one.name in failing]
        return [_kept_seconds(self._clock() - min(since) if since else 0.0)]


def _kept_seconds(value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "nodeagent_dns_kept_seconds",
        "Longest time in seconds that a hostname has been kept without DNS; 0 if there is none.",
        value=value,
    )


class RelayCollector:
    """HAProxy's view of what is behind the relay; without a source, families without samples."""

    def __init__(self) -> None:
        self.statistics: RelayStatistics | None = None

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the families without samples; HAProxy is not asked."""
        return _relay_families()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Ask HAProxy; return whether it answered and, if so, the state of each load balancer's upstream."""
        answered, backends, connections, rejected = _relay_families()
        if self.statistics is not None:
            found = self.statistics()
            if isinstance(found, Unreachable):
                answered.add_metric([], 0)
            else:
                answered.add_metric([], 1)
                for load_balancer, up in backends_up(found).items():
                    backends.add_metric([load_balancer.path], int(up))
                for load_balancer, (now, refused) in connection_counts(found).items():
                    connections.add_metric([load_balancer.path], now)
                    rejected.add_metric([load_balancer.path], refused)
        return answered, backends, connections, rejected


def connection_counts(servers: Iterable[ServerState]) -> Mapping[ObjectRef, tuple[int, int]]:
    """Return the load balancers, each with its connections and those rejected since the last reload. Pure."""
    found: dict[ObjectRef, tuple[int, int]] = {}
    for server in servers:
        now, rejected = found.get(server.load_balancer, (0, 0))
        found[server.load_balancer] = (now + server.connections, rejected + server.rejected)
    return found


def backends_up(servers: Iterable[ServerState]) -> Mapping[ObjectRef, bool]:
    """Return the load balancers, each with whether the servers of all its listeners are up. Pure."""
    found: dict[ObjectRef, bool] = {}
    for server in servers:
        found[server.load_balancer] = found.get(server.load_balancer, True) and server.up
    return found


def _relay_families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily(
            "nodeagent_relay_up", "1 if the relay's HAProxy returned its statistics, otherwise 0."
        ),
        GaugeMetricFamily(
            "nodeagent_relay_upstream_up",
            "1 if HAProxy's health checks find every port of the load balancer's Service up, otherwise 0.",
            labels=["load_balancer"],
        ),
        GaugeMetricFamily(
            "nodeagent_relay_connections",
            "Number of current connections through the relay.",
            labels=["load_balancer"],
        ),
        GaugeMetricFamily(
            "nodeagent_relay_rejected_connections",
            "Number of connections that the relay's limits rejected since HAProxy's last reload.",
            labels=["load_balancer"],
        ),
    )


def _counted(name: str, meaning: str, counts: Mapping[tuple[str, str], int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=["state", "reason"])
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family
