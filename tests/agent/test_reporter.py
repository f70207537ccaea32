"""The log has a line for what changed, and none for what DNS says otherwise to no effect."""

import logging
from copy import copy
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from nodeagent.agent.convergence import NodePass, Repair
from nodeagent.agent.reconciler import Reconciler
from nodeagent.agent.reporter import Reporter
from nodeagent.components.component import COMPONENTS, ComponentName
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired
from nodeagent.model.objects import Unreadable
from nodeagent.observe.event_recorder import EventRecorder
from nodeagent.observe.metrics import AgentMetrics
from nodeagent.observe.transition_log import TransitionLog
from nodeagent.sources.kubernetes.cluster import ResourceState
from nodeagent.sources.kubernetes.fail_static import KindState
from tests.agent.happening import name, new_metrics
from tests.agent.scraping import Scrape, read
from tests.clock import Clock


def decided(status: DecisionStatus, code: str, reason: str, stable: str = "") -> Desired:
    return Desired(names=(name("shop.example.test", status, code, reason=reason, stable=stable),))


REFUSED = decided(DecisionStatus.REFUSED, "NotVerified", "DNS answers 198.51.100.4", "DNS answers otherwise")
UNASKED = decided(DecisionStatus.SERVED, "KeptUnasked", "kept: not asked yet")
PROVEN = decided(DecisionStatus.SERVED, "Verified", "verified: DNS answers 192.0.2.1")


# A CDN answers otherwise every minute.
ROTATED = decided(DecisionStatus.REFUSED, "NotVerified", "DNS answers 198.51.100.5", "DNS answers otherwise")


@pytest.mark.parametrize(
    ("before", "after", "logged"),
    [
        (None, REFUSED, ["Hostname refused"]),
        (REFUSED, PROVEN, ["Hostname served"]),
        (PROVEN, REFUSED, ["Hostname refused"]),
        (PROVEN, Desired(), ["Hostname removed"]),
        (REFUSED, ROTATED, []),
        # As each name is after the agent's start.
        (UNASKED, PROVEN, []),
        (UNASKED, REFUSED, ["Hostname refused"]),
    ],
)
def test_a_decision_is_logged_when_it_is_new_or_has_another_effect(
    before: Desired | None, after: Desired, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    log = TransitionLog()
    if before:
        log.decisions(before)
    with caplog.at_level(logging.INFO, "nodeagent"):
        caplog.clear()
        log.decisions(after)
    assert [record.getMessage() for record in caplog.records] == logged


def test_a_namespace_has_sixty_lines_a_minute_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = TransitionLog(clock)
    caplog.set_level(logging.INFO, "nodeagent")
    for change in range(20):
        code = f"Code{change}"
        names = [name(f"a-{number:03}", code=code, namespace="a-tenant") for number in range(150)]
        log.decisions(Desired(names=(*names, name("b", code=code, namespace="b-shop"))))
    about = [record.__dict__["fields"].get("claimed_by", "") for record in caplog.records]
    assert about.count("Ingress a-tenant/site") == 60
    assert about.count("Ingress b-shop/site") == 20
    assert sum(record.getMessage().startswith("Omitted") for record in caplog.records) == 1
    flood = tuple(Unreadable(f"Ingress hosts/{number}", "why") for number in range(150))
    log.decisions(Desired(unreadable=(*flood, Unreadable("Ingress shop/web", "why"))))
    log.problems("Could not watch a component", {"hosts": "why"}, "component")
    texts = [record.getMessage() for record in caplog.records]
    assert texts.count("Skipped an object") == 61, "objects that can't be read have the same limit"
    assert texts.count("Could not watch a component") == 1, "and hide no component"
    caplog.clear()
    clock.now += 60
    changed, same = (name("a-001", namespace="a-tenant"), name("b", code="Code19", namespace="b-shop"))
    log.decisions(Desired(names=(changed, same)))
    assert "Ingress a-tenant/site" in str([record.__dict__["fields"] for record in caplog.records])
    caplog.clear()
    log.decisions(Desired(names=tuple(name(f"c-{each}", namespace=f"c-{each}") for each in range(101))))
    assert sum(record.getMessage().startswith("Hostname ") for record in caplog.records) == 100


def test_of_two_decisions_on_one_subject_the_first_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """As of a Route on the Gateways of two load balancers; each plan may make new decisions."""
    log = TransitionLog()
    caplog.set_level(logging.INFO, "nodeagent")
    for _ in range(5):
        both = (PROVEN.names[0], REFUSED.names[0])
        log.decisions(Desired(names=tuple(map(copy, both))))
    assert [record.getMessage() for record in caplog.records] == ["Hostname served"]


class _Actual(dict[ComponentName, Mock]):
    """Of each component; of the relay by its name, too."""

    @property
    def relay(self) -> Mock:
        return self["relay"]


def _reporter(metrics: AgentMetrics) -> Reporter:
    return Reporter(metrics, cast("EventRecorder", SimpleNamespace(record=len)))


def reconciler() -> SimpleNamespace:
    actual = {name: Mock(error="", notes=(), serving=None) for name in COMPONENTS}
    for part in actual.values():
        part.state.return_value = part
    left_alone = SimpleNamespace(conflicting=lambda: frozenset({"dnat"}), failing=False)
    return SimpleNamespace(backoff=left_alone, actual=_Actual(actual))


def test_a_pass_is_counted_by_component() -> None:
    metrics = new_metrics()
    conflict = Repair("rule deleted", 1.0)
    done = NodePass(
        Desired(), errors={"hosts": "read only"}, seconds={"dnat": 7.0}, repairs={"dnat": conflict}
    )
    reported_of = reconciler()
    reporter = _reporter(metrics)

    def reported() -> Scrape:
        reporter.report_pass(done, cast("Reconciler", reported_of), None)
        return read(metrics.exposition())

    reported()
    found = reported()
    for component in COMPONENTS:
        failures, twice = 2 * (component == "hosts"), 2 * (component == "dnat")
        assert found.value("nodeagent_apply_duration_seconds_count", component=component) == 2
        assert found.value("nodeagent_apply_failures_total", component=component) == failures
        assert found.value("nodeagent_drift_repairs_total", component=component) == twice
        assert found.value("nodeagent_drift_conflict", component=component) == twice / 2
        assert found.value("nodeagent_apply_duration_seconds_sum", component=component) == twice * 7
    assert found.value("nodeagent_last_sync_timestamp_seconds") == 0
    reported_of.backoff.conflicting, done.errors = frozenset, {}
    found = reported()
    assert found.value("nodeagent_drift_conflict", component="dnat") == 0
    assert (found.value("nodeagent_last_sync_timestamp_seconds") or 0) > 1.7e9


def test_namespaces_whose_load_balancers_wait_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reporter = _reporter(new_metrics())
    for _ in range(2):
        done = NodePass(Desired(), waiting=frozenset({"noisy"}))
        reporter.report_pass(done, cast("Reconciler", reconciler()), None)
    (line,) = caplog.records
    assert line.__dict__["fields"]["namespace"] == "noisy"


def test_what_is_not_watched_is_reported_and_the_agent_is_ready(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nodeagent")
    metrics = new_metrics()
    status = metrics.status
    status.synced()
    reporter, of = _reporter(metrics), reconciler()
    of.actual["hosts"].error = "Too many open files"
    of.actual["relay"].notes = ("relay: master.sock: it does not answer",)
    for _ in range(2):
        reporter.report_watches(cast("Reconciler", of))
    assert status.ready().ok
    assert "drift: failed since 0 s: hosts " in status.ready().text
    assert "relay-notes: failed since 0 s: relay: master.sock: " in status.ready().text
    found = read(metrics.exposition())
    assert found.value("nodeagent_failing", component="drift") == 1
    assert found.value("nodeagent_failing", component="relay-notes") == 1
    assert found.value("nodeagent_failing", component="dnat") == 0
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    of.actual["hosts"].error, of.actual["relay"].notes = "", ()
    reporter.report_watches(cast("Reconciler", of))
    assert "drift: ok" in status.ready().text
    assert caplog.records[-1].getMessage() == "Watched a component again"


ROUTES = "httproutes.gateway.networking.k8s.io"
SERVICES = ResourceState("services", synced=True, objects=3)
ABSENT = ResourceState(ROUTES, synced=False, optional=True, state=KindState.ABSENT)
DENIED = ResourceState(ROUTES, synced=False, error="403", optional=True, state=KindState.DENIED)
PENDING = ResourceState(ROUTES, synced=False, optional=True, state=KindState.PENDING)
FAILING = ResourceState(ROUTES, synced=True, error="500: no webhook", optional=True)


@pytest.mark.parametrize(
    ("route", "shown", "failing"),
    [
        # What the agent does its work without is no error.
        (ABSENT, "api: ok", 0),
        (DENIED, "api: ok", 0),
        # A conversion webhook that is away, say: its names are not what they should be.
        (FAILING, "api: failed since 0 s: 500: no webhook", 1),
        (PENDING, "api: ok", 0),
    ],
)
def test_the_api_is_ok_if_all_that_is_needed_is_read(route: ResourceState, shown: str, failing: int) -> None:
    metrics = new_metrics()
    metrics.resources = lambda: (SERVICES, route)
    _reporter(metrics).report_api((SERVICES, route))
    assert shown in metrics.status.ready().text
    found = read(metrics.exposition())
    assert found.value("nodeagent_failing", component="api") == failing
    assert found.value("nodeagent_objects", resource="services") == 3
    coverage = {"resource": ROUTES, "state": str(route.state)}
    assert found.value("nodeagent_resource_coverage", **coverage) == 1


def test_what_can_not_be_read_is_logged_at_its_begin_and_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nodeagent")
    reporter = _reporter(new_metrics())
    for route in (ABSENT, DENIED, DENIED, replace(FAILING, error=None), FAILING, FAILING, DENIED):
        reporter.report_api([route])
    failing = "Could not read from the API server; the node keeps what it has"
    over = "A resource of the API server fails no longer"
    assert [record.message for record in caplog.records] == [failing, over, failing]
