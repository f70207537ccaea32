"""What the controller of CoreDNS's names measures: whether it writes, when it was in sync, how many names.

Imports prometheus_client when the first is made, as metrics.py does.
"""


class CoreDnsMetrics:
    """The controller's metrics, on a registry of their own. Its methods may be called from any thread.

    The names begin with `nodeagent_coredns_`: an agent's alerts do not count them, nor theirs an agent's.
    """

    def __init__(self) -> None:
        import prometheus_client as client  # noqa: PLC0415 - see metrics.py's head

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
        """It holds the lease, or does not."""
        self._leader.set(leading)

    def synced(self, at: float, names: int) -> None:
        """All is as desired at `at` (seconds since the epoch), with so many names."""
        self._last_sync.set(at)
        self._names.set(names)

    def failed(self) -> None:
        """A pass failed, or a part of it."""
        self._failures.inc()

    def exposition(self) -> bytes:
        """All metrics as text, in the format that metrics.CONTENT_TYPE names."""
        return self._generate(self._registry)
