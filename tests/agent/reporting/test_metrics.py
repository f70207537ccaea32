"""What a scrape shows after something happened."""

import time
from pathlib import Path

import prometheus_client
import pytest

from nodeagent import __version__
from nodeagent.agent.reporting.metrics import CoreDnsMetrics, Metrics
from nodeagent.components.relay.haproxy_sockets import Silence, Unreachable
from nodeagent.model.desired import Desired, LoadBalancerDecision, Verdict
from nodeagent.model.facts import DnsOutcome
from nodeagent.sources.kubernetes.informers import Coverage
from nodeagent.sources.kubernetes.resources import RESOURCE_NAMES
from tests.agent.reporting.happening import BLUE, COMPONENTS, GREEN, everything, name, server
from tests.agent.reporting.scraping import Scrape, read


def scrape(metrics: Metrics) -> Scrape:
    return read(metrics.exposition())


def test_series_with_known_labels_are_0_before_anything_happened() -> None:
    """Otherwise a rate would miss the first event."""
    found = scrape(Metrics())

    for component in COMPONENTS:
        for counter in ("nodeagent_applies_total", "nodeagent_apply_failures_total"):
            assert found.value(counter, component=component) == 0
        assert found.value("nodeagent_apply_duration_seconds_count", component=component) == 0
        for series in ("drift_repairs_total", "drift_conflicts_total", "drift_conflict"):
            assert found.value(f"nodeagent_{series}", component=component) == 0
    for resource in RESOURCE_NAMES:
        for series in ("objects", "watch_restarts_total", "relists_total"):
            assert found.value(f"nodeagent_{series}", resource=resource) == 0
        for state in Coverage:
            assert found.value("nodeagent_resource_coverage", resource=resource, state=str(state)) == 0
    for result in ("ok", "rejected"):
        assert found.value("nodeagent_config_reloads_total", result=result) == 0
    for outcome in DnsOutcome:
        assert found.value("nodeagent_dns_names_asked_total", outcome=str(outcome)) == 0
    for series in (
        "dns_kept_seconds",
        "event_to_applied_seconds_count",
        "unreadable_objects",
        "api_up",
        "api_read_bytes_total",
        "last_sync_timestamp_seconds",
        "writer",
    ):
        assert found.value(f"nodeagent_{series}") == 0


def test_events_add_no_series_but_those_of_decisions_and_the_relay() -> None:
    """All other label sets are known from the start."""
    before = {key for family in scrape(Metrics()).families.values() for key in family.samples}
    after = {key for family in scrape(everything()).families.values() for key in family.samples}

    assert before < after
    assert {sample for sample, _ in after - before} == {
        "nodeagent_load_balancers",
        "nodeagent_names",
        "nodeagent_relay_up",
        "nodeagent_relay_upstream_up",
        "nodeagent_relay_connections",
        "nodeagent_relay_rejected_connections",
    }


def test_applies_and_failures_are_counted_and_timed_by_component() -> None:
    """A failed run is a run too."""
    metrics = Metrics()
    metrics.applied("hosts", 0.0008)
    metrics.applied("hosts", 0.004)
    metrics.apply_failed("dnat", 7)

    found = scrape(metrics)
    assert found.value("nodeagent_applies_total", component="hosts") == 2
    assert found.value("nodeagent_apply_failures_total", component="hosts") == 0
    assert found.value("nodeagent_apply_duration_seconds_bucket", component="hosts", le="0.001") == 1
    assert found.value("nodeagent_apply_duration_seconds_bucket", component="hosts", le="0.005") == 2
    assert found.value("nodeagent_applies_total", component="dnat") == 1
    assert found.value("nodeagent_apply_failures_total", component="dnat") == 1
    assert found.value("nodeagent_apply_duration_seconds_bucket", component="dnat", le="5.0") == 0
    assert found.value("nodeagent_apply_duration_seconds_bucket", component="dnat", le="10.0") == 1


def test_the_latency_of_an_event_falls_into_buckets_from_a_millisecond_to_ten_seconds() -> None:
    """The goals, 50 ms and 1 s, are bounds of buckets."""
    metrics = Metrics()
    for seconds in (0.0005, 0.049, 0.9, 60):
        metrics.event_applied(seconds)

    found = scrape(metrics)
    counts = {
        bound: found.value("nodeagent_event_to_applied_seconds_bucket", le=bound)
        for bound in ("0.001", "0.025", "0.05", "1.0", "10.0", "+Inf")
    }
    assert counts == {"0.001": 1, "0.025": 1, "0.05": 2, "1.0": 3, "10.0": 3, "+Inf": 4}


def test_a_fight_goes_on_until_it_ends_and_stays_counted() -> None:
    """The gauge is for the alert, the counter for the history."""
    metrics = Metrics()
    metrics.repaired("dnat")
    metrics.conflict_began("dnat")
    assert scrape(metrics).value("nodeagent_drift_conflict", component="dnat") == 1

    metrics.conflict_ended("dnat")
    found = scrape(metrics)
    assert found.value("nodeagent_drift_conflict", component="dnat") == 0
    assert found.value("nodeagent_drift_conflicts_total", component="dnat") == 1
    assert found.value("nodeagent_drift_repairs_total", component="dnat") == 1
    assert found.value("nodeagent_drift_repairs_total", component="hosts") == 0


def test_the_api_and_the_writer_come_and_go() -> None:
    """Gauges of what is so now."""
    metrics = Metrics()
    metrics.api_answered()
    metrics.became_writer()
    assert scrape(metrics).value("nodeagent_api_up") == 1
    assert scrape(metrics).value("nodeagent_writer") == 1

    metrics.api_lost()
    metrics.became_standby()
    assert scrape(metrics).value("nodeagent_api_up") == 0
    assert scrape(metrics).value("nodeagent_writer") == 0


def test_decisions_are_counted_by_state_and_reason() -> None:
    """Names and addresses are no labels: their number has no bound."""
    metrics = Metrics()
    metrics.decided(
        Desired(
            load_balancers=(
                LoadBalancerDecision(BLUE, Verdict.SERVED, "Listed", "listed"),
                LoadBalancerDecision(GREEN, Verdict.SKIPPED, "NotProxy", "no annotation"),
            ),
            names=(
                *(name(f"{number}.example.com", Verdict.SERVED, "Allowed") for number in range(3)),
                name("evil.example.org", Verdict.REFUSED, "NotVerified"),
            ),
        )
    )

    found = scrape(metrics)
    assert found.value("nodeagent_load_balancers", state="served", reason="Listed") == 1
    assert found.value("nodeagent_load_balancers", state="skipped", reason="NotProxy") == 1
    assert found.value("nodeagent_names", state="served", reason="Allowed") == 3
    assert found.value("nodeagent_names", state="refused", reason="NotVerified") == 1
    assert b"evil" not in metrics.exposition()


def test_a_decision_that_is_no_longer_made_leaves_no_series() -> None:
    """An alert on refused names ends with the last of them."""
    metrics = Metrics()
    metrics.decided(Desired(names=(name("a.example.com", Verdict.REFUSED, "NotVerified"),)))
    metrics.decided(Desired(names=(name("a.example.com", Verdict.SERVED, "Allowed"),)))

    assert scrape(metrics).value("nodeagent_names", state="refused", reason="NotVerified") is None
    assert scrape(metrics).value("nodeagent_names", state="served", reason="Allowed") == 1

    metrics.decided(Desired())
    assert scrape(metrics).families["nodeagent_names"].samples == {}


def test_a_load_balancer_is_up_when_all_its_ports_are() -> None:
    """HAProxy is asked at each scrape, so the value is of now."""
    metrics = Metrics()
    servers = [server(BLUE, 80, up=True), server(BLUE, 443, up=False), server(GREEN, 443, up=True)]
    metrics.watch_relay(lambda: tuple(servers))

    found = scrape(metrics)
    assert found.value("nodeagent_relay_up") == 1
    assert found.value("nodeagent_relay_upstream_up", load_balancer="ingress/blue") == 0
    assert found.value("nodeagent_relay_upstream_up", load_balancer="ingress/green") == 1
    assert found.value("nodeagent_relay_connections", load_balancer="ingress/blue") == 14
    assert found.value("nodeagent_relay_rejected_connections", load_balancer="ingress/blue") == 6

    servers[:] = [server(BLUE, 80, up=True), server(BLUE, 443, up=True)]
    found = scrape(metrics)
    assert found.value("nodeagent_relay_upstream_up", load_balancer="ingress/blue") == 1
    assert found.value("nodeagent_relay_upstream_up", load_balancer="ingress/green") is None


def test_a_relay_that_does_not_answer_is_down_and_its_backends_are_unknown() -> None:
    """Not reported is not the same as down."""
    metrics = Metrics()
    metrics.watch_relay(lambda: Unreachable("/run/nodeagent/relay.sock", Silence.REFUSED))

    found = scrape(metrics)
    assert found.value("nodeagent_relay_up") == 0
    assert found.families["nodeagent_relay_upstream_up"].samples == {}


def test_without_a_relay_of_our_own_there_are_no_series_of_it() -> None:
    """With relay.kind: service an alert on HAProxy must not fire."""
    metrics = everything()
    metrics.watch_relay(None)

    assert scrape(metrics).families["nodeagent_relay_up"].samples == {}
    assert scrape(metrics).families["nodeagent_relay_upstream_up"].samples == {}


def test_the_process_and_the_build_are_reported() -> None:
    """Memory and CPU under the names that every dashboard knows."""
    found = scrape(Metrics())

    assert found.value("nodeagent_build_info", version=__version__) == 1
    assert (found.value("process_resident_memory_bytes") or 0) > 1_000_000
    assert (found.value("process_cpu_seconds_total") or 0) > 0


def test_the_age_of_kept_names_is_that_of_the_oldest() -> None:
    """A hostname that was never verified does not count, however long DNS does not answer for it."""
    metrics = Metrics()
    now = time.monotonic()
    metrics.watch_dns(lambda: {"kept.example": now - 60, "old.example": now - 90, "never.example": now - 900})
    kept = (name(text, Verdict.SERVED, "Kept") for text in ("kept.example", "old.example", "fine.example"))
    metrics.decided(Desired(names=(*kept, name("never.example", Verdict.REFUSED, "DnsTimeout"))))

    age = scrape(metrics).value("nodeagent_dns_kept_seconds")
    assert age is not None
    assert 90 <= age < 200


def test_two_sets_of_metrics_share_nothing_and_the_global_registry_stays_empty_of_them() -> None:
    """The registry is private."""
    one, other = Metrics(), Metrics()
    one.repaired("hosts")

    assert scrape(one).value("nodeagent_drift_repairs_total", component="hosts") == 1
    assert scrape(other).value("nodeagent_drift_repairs_total", component="hosts") == 0
    assert b"nodeagent_" not in prometheus_client.generate_latest()


def test_a_part_that_is_none_is_an_error_and_makes_no_series() -> None:
    """A typing error is found by the first test, not by a dashboard."""
    metrics = Metrics()
    before = len(metrics.exposition().splitlines())

    with pytest.raises(KeyError):
        metrics.applied("host", 1)  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        metrics.watch_restarted("pods")
    assert len(metrics.exposition().splitlines()) == before


def test_no_series_has_its_time_of_creation() -> None:
    """Twice the series for what process_start_time_seconds says."""
    assert b"_created" not in everything().exposition()


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """The table of docs/metrics.md: name, then type and labels."""
    text = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    found = {}
    for row in (row for row in rows if len(row) == 4):  # the probes' table has three
        metric, kind, labels, meaning = (cell.strip() for cell in row)
        assert meaning
        assert metric not in found
        found[metric.strip("`")] = (
            kind,
            frozenset(label.strip().strip("`") for label in labels.split(",") if label.strip()),
        )
    return found


def test_the_documented_metrics_are_those_of_a_scrape() -> None:
    """Both ways: name, type and labels; what is not documented is as wrong as what is not there."""
    families = {**scrape(everything()).families, **read(CoreDnsMetrics().exposition()).families}

    assert {metric: (family.kind, family.labels) for metric, family in families.items()} == documented()
