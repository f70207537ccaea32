"""What a process counts and measures, and its status at each scrape. EFFECTS: only counting.

With agent/metrics.py the importer of prometheus_client: import it only where a process serves metrics.

Labels: the values of every label are known beforehand (a component, a resource) or limited (a reason's code,
a load balancer for which the relay has an address). A name, an address or an error's text is never one.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any

import prometheus_client as client
from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from nodeagent.runtime.status import Status

# From one millisecond, about a hosts file's rename, to ten seconds, longer than any wait for HAProxy.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_RELOADS = "config_reloads_total"

Family = CounterMetricFamily | GaugeMetricFamily


class Metric(Struct, frozen=True):
    """A metric: its name without the prefix (a counter's ends in _total), meaning, and labels' values."""

    name: str
    meaning: str
    labels: Mapping[str, Iterable[str]] = MappingProxyType({})


class Metrics(Collector):
    """One process's metrics, on a registry of their own. Its methods may be called from any thread.

    What is counted exists from the start, at 0: so a rate over it includes the first event. An unknown name
    or label raises KeyError: it would be a new, unknown series. What has a value now is computed at each
    scrape: that costs a pass nothing, and none of its series becomes stale.

    Args:
        prefix: The beginning of all names.
        status: How the process is.
        counters: What only grows.
        histograms: Durations.
    """

    def __init__(
        self,
        prefix: str,
        status: Status,
        counters: Iterable[Metric] = (),
        histograms: Iterable[Metric] = (),
    ) -> None:
        # Without this, every counter and histogram has a second series with the time of its creation, which
        # process_start_time_seconds shows as well. The switch is per process; nothing else here counts.
        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.status = status
        self._prefix = prefix
        self._registry = client.CollectorRegistry()
        self._series: dict[tuple[str, ...], Any] = {}
        outcomes = {"result": ("ok", "rejected")}
        reloads = Metric(_RELOADS, "Total number of configuration reloads, by result.", outcomes)
        timed = partial(client.Histogram, buckets=_SECONDS)
        for kind, metrics in ((client.Counter, (*counters, reloads)), (timed, histograms)):
            for one in metrics:
                made: Any = kind(f"{prefix}{one.name}", one.meaning, [*one.labels], registry=self._registry)
                for values in product(*one.labels.values()):
                    self._series[one.name, *values] = made.labels(*values) if values else made
        self._registry.register(self)
        self._registry.register(client.ProcessCollector(registry=None))

    def count(self, name: str, *labels: str) -> None:
        """Increase a counter by one."""
        self._series[name, *labels].inc()

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        self._series[name, *labels].observe(seconds)

    def config_reloaded(self, *, accepted: bool) -> None:
        """Count a new configuration: it is active, or was rejected, and the old one stays active."""
        self.count(_RELOADS, "ok" if accepted else "rejected")

    def exposition(self) -> bytes:
        """Return all metrics as text, as telemetry_server.py serves it."""
        return client.generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        """Return the families that are computed at each scrape."""
        synced_at = self.status.synced_at
        yield self.family(
            "last_sync_timestamp_seconds",
            "Unix time when everything was last in the desired state; 0 if never.",
            {(): 0.0 if synced_at is None else time.time() - (time.monotonic() - synced_at)},
        )

    def family(
        self, name: str, meaning: str, samples: Mapping[Any, float], labels: Iterable[str] = ()
    ) -> Family:
        """Return one metric with samples by their labels' values: a counter if its name ends in _total."""
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        made = kind(f"{self._prefix}{name}", meaning, labels=[*labels])
        for values, value in samples.items():
            made.add_metric(values, value)
        return made
