"""What a process counts and measures. EFFECTS: only counting; only the text of a scrape leaves this module.

With agent/metrics.py the importer of prometheus_client; it costs 4 MB and 0.07 s to import, so it is
imported when the first `Metrics` is made: the daemons pay for it, `nodeagent plan` does not.

Labels: the values of every label are known beforehand (a component, a resource) or limited (a reason's code,
a load balancer for which the relay has an address). A name, an address or an error's text is never one.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

# From one millisecond, about a hosts file's rename, to ten seconds, longer than any wait for HAProxy.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_RELOADS = "config_reloads_total"


class Metric(Struct, frozen=True):
    """A metric: its name without the prefix (a counter's ends in _total), meaning, and labels' values."""

    name: str
    meaning: str
    labels: Mapping[str, Iterable[str]] = MappingProxyType({})


class Metrics:
    """One process's metrics, on a registry of their own. Its methods may be called from any thread.

    All series exist from the start, at 0: so a rate over them includes the first event. An unknown name or
    label raises KeyError: it would be a new, unknown series.

    Args:
        prefix: The beginning of all names.
        counters: What only grows.
        gauges: What has a value now; the first one says whether this process is the writer.
        histograms: Durations.
        collectors: What computes its series at each scrape.
    """

    def __init__(
        self,
        prefix: str,
        counters: Iterable[Metric],
        gauges: tuple[Metric, ...],
        histograms: Iterable[Metric] = (),
        collectors: "Iterable[Collector]" = (),
    ) -> None:
        import prometheus_client as client  # noqa: PLC0415 - see the module's head

        # Without this, every counter and histogram has a second series with the time of its creation, which
        # process_start_time_seconds shows as well. The switch is per process; nothing else here counts.
        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = client.CollectorRegistry()
        self._series: dict[tuple[str, ...], Any] = {}
        self._role = gauges[0].name
        self._generate = client.generate_latest
        outcomes = {"result": ("ok", "rejected")}
        reloads = Metric(_RELOADS, "Total number of configuration reloads, by result.", outcomes)
        kinds: tuple[tuple[Callable[..., Any], Iterable[Metric]], ...] = (
            (client.Counter, (*counters, reloads)),
            (client.Gauge, gauges),
            (partial(client.Histogram, buckets=_SECONDS), histograms),
        )
        for kind, metrics in kinds:
            for one in metrics:
                made = kind(f"{prefix}{one.name}", one.meaning, [*one.labels], registry=self._registry)
                for values in product(*one.labels.values()):
                    self._series[one.name, *values] = made.labels(*values) if values else made
        for collector in (*collectors, client.ProcessCollector(registry=None)):
            self._registry.register(collector)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Increase a counter."""
        self._series[name, *labels].inc(by)

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._series[name, *labels].set(value)

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram."""
        self._series[name, *labels].observe(seconds)

    def set_role(self, *, writing: bool) -> None:
        """Set whether this process writes."""
        self.set(self._role, writing)

    def config_reloaded(self, *, accepted: bool) -> None:
        """Count a new configuration: it is active, or was rejected, and the old one stays active."""
        self.count(_RELOADS, "ok" if accepted else "rejected")

    def exposition(self) -> bytes:
        """Return all metrics as text, as telemetry_server.py serves it."""
        return self._generate(self._registry)
