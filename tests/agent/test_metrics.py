import time

from nodeagent import __version__
from nodeagent.components.relay.haproxy_sockets import Silence, Unreachable
from nodeagent.model.decisions import Conclusion, DecisionStatus, LoadBalancerDecision
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply
from nodeagent.model.objects import ObjectRef
from nodeagent.observe.metrics import AgentMetrics
from tests.agent.happening import BLUE, GREEN, everything, name, new_metrics, server
from tests.agent.scraping import Scrape, read
from tests.cases import cases_of

OF_DECISIONS_THE_API_AND_THE_RELAY = set(cases_of(__file__, "cases.yaml")["empty at first"])


def scrape(metrics: AgentMetrics) -> Scrape:
    return read(metrics.exposition())


def test_series_with_known_labels_are_0_before_anything_happened_and_no_others_come() -> None:
    """Otherwise a rate would miss the first event."""
    families, later = scrape(new_metrics()).families, scrape(everything()).families
    empty = {metric for metric, family in families.items() if not family.samples}
    assert empty == OF_DECISIONS_THE_API_AND_THE_RELAY
    for metric, family in families.items():
        if not metric.startswith(("process_", "nodeagent_build_info")):
            assert set(family.samples.values()) <= {0}
    before, after = ({key for one in each.values() for key in one.samples} for each in (families, later))
    assert before < after
    assert {sample for sample, _ in after - before} == OF_DECISIONS_THE_API_AND_THE_RELAY


def test_the_latency_of_an_event_falls_into_buckets_from_a_millisecond_to_ten_seconds() -> None:
    """The goals, 50 ms and 1 s, are bounds of buckets."""
    metrics = new_metrics()
    for seconds in (0.0005, 0.049, 0.9, 60):
        metrics.event_to_applied.observe(seconds)
    found = scrape(metrics)
    counts = {
        bound: found.value("nodeagent_event_to_applied_seconds_bucket", le=bound)
        for bound in ("0.001", "0.025", "0.05", "1.0", "10.0", "+Inf")
    }
    assert counts == {"0.001": 1, "0.025": 1, "0.05": 2, "1.0": 3, "10.0": 3, "+Inf": 4}


def test_decisions_are_counted_by_state_and_reason() -> None:
    """Names and addresses are no labels: their number has no bound."""
    metrics = new_metrics()
    metrics.status.desired = Desired(
        load_balancers=(
            LoadBalancerDecision(BLUE, Conclusion(DecisionStatus.SERVED, "Listed", "listed")),
            LoadBalancerDecision(GREEN, Conclusion(DecisionStatus.SKIPPED, "NotProxy", "no annotation")),
        ),
        names=(
            *(name(f"{number}.example.com", DecisionStatus.SERVED, "Allowed") for number in range(3)),
            name("evil.example.org", DecisionStatus.REFUSED, "NotVerified"),
        ),
    )
    found = scrape(metrics)
    assert found.value("nodeagent_load_balancers", state="served", reason="Listed") == 1
    assert found.value("nodeagent_load_balancers", state="skipped", reason="NotProxy") == 1
    assert found.value("nodeagent_names", state="served", reason="Allowed") == 3
    assert found.value("nodeagent_names", state="refused", reason="NotVerified") == 1
    assert b"evil" not in metrics.exposition()
    # An alert on refused names ends with the last of them.
    metrics.status.desired = Desired(names=(name("evil.example.org", DecisionStatus.SERVED, "Allowed"),))
    found = scrape(metrics)
    assert found.value("nodeagent_names", state="refused", reason="NotVerified") is None
    assert found.value("nodeagent_names", state="served", reason="Allowed") == 1
    metrics.status.desired = Desired()
    assert scrape(metrics).families["nodeagent_names"].samples == {}


def test_a_load_balancer_is_up_when_all_its_ports_are() -> None:
    """HAProxy is asked at each scrape, so the value is of now."""
    metrics = new_metrics()
    servers = [server(BLUE, 80, up=True), server(BLUE, 443, up=False), server(GREEN, 443, up=True)]
    intruders = [
        server(ObjectRef("Service", "ingress", f"made-up-{number}"), 80, up=True) for number in range(9)
    ]
    metrics.statistics = lambda: (*servers, *intruders)
    listed = Conclusion(DecisionStatus.SERVED, "Listed", "listed")
    metrics.status.desired = Desired(
        load_balancers=tuple(LoadBalancerDecision(ref, listed) for ref in (BLUE, GREEN))
    )
    found = scrape(metrics)
    assert found.value("nodeagent_relay_up") == 1
    assert found.value("nodeagent_relay_upstream_up", load_balancer="ingress/blue") == 0
    assert found.value("nodeagent_relay_upstream_up", load_balancer="ingress/green") == 1
    assert found.value("nodeagent_relay_connections", load_balancer="ingress/blue") == 14
    assert b"made-up" not in metrics.exposition()
    assert found.value("nodeagent_relay_rejected_connections", load_balancer="ingress/blue") == 6
    servers[:] = [server(BLUE, 80, up=True), server(BLUE, 443, up=True)]
    found = scrape(metrics)
    assert found.value("nodeagent_relay_upstream_up", load_balancer="ingress/blue") == 1
    assert found.value("nodeagent_relay_upstream_up", load_balancer="ingress/green") is None


def test_of_a_relay_that_does_not_answer_and_of_none_nothing_is_known() -> None:
    """Not reported is not the same as down; with relay.kind: service an alert on HAProxy must not fire."""
    metrics = everything()
    silent = Unreachable("/run/nodeagent/relay.sock", Silence.REFUSED)
    for statistics, up in ((lambda: silent, 0), (None, None)):
        metrics.statistics = statistics
        found = scrape(metrics)
        assert found.value("nodeagent_relay_up") == up
        assert found.families["nodeagent_relay_upstream_up"].samples == {}


def test_the_process_and_the_build_are_reported() -> None:
    """Memory and CPU under the names that every dashboard knows."""
    found = scrape(new_metrics())
    assert found.value("nodeagent_build_info", version=__version__) == 1
    assert (found.value("process_resident_memory_bytes") or 0) > 1_000_000
    assert (found.value("process_cpu_seconds_total") or 0) > 0


def test_the_age_of_kept_names_is_that_of_the_oldest() -> None:
    """A hostname that was never verified does not count, however long DNS does not answer for it."""
    metrics = new_metrics()
    now = time.monotonic()
    away = DnsReply(DnsOutcome.TIMEOUT)
    metrics.dns = lambda: {
        f"{name}.example": DnsAnswer(away, failing_since=now - seconds)
        for name, seconds in (("kept", 60), ("old", 90), ("never", 900))
    }
    kept = (
        name(text, DecisionStatus.SERVED, "Kept") for text in ("kept.example", "old.example", "fine.example")
    )
    metrics.status.desired = Desired(
        names=(*kept, name("never.example", DecisionStatus.REFUSED, "DnsTimeout"))
    )
    age = scrape(metrics).value("nodeagent_dns_kept_seconds")
    assert age is not None
    assert 90 <= age < 200
