"""Few Events say what an administrator must know, in the same words on every node."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.model.decisions import DecisionStatus, LoadBalancerDecision, refused, served, skipped
from nodeagent.model.desired import Desired
from nodeagent.model.objects import ObjectRef
from nodeagent.observe import event_recorder
from nodeagent.observe.event_recorder import EventRecorder, PendingEvent
from nodeagent.observe.event_recorder import pending_events as events
from tests.agent.happening import BLUE, name
from tests.apiserver import ApiServer
from tests.clock import Clock
from tests.sources.kubernetes.watching import connected


def test_a_refused_load_balancer_gets_an_event_with_its_reason() -> None:
    decision = LoadBalancerDecision(BLUE, refused("RangeExhausted", "no relay address is left"))
    (found,) = events(Desired(load_balancers=(decision,)))
    assert (found.service, found.code, found.message) == (BLUE, "RangeExhausted", "no relay address is left")


_SERVED = LoadBalancerDecision(BLUE, served("Listed", "listed"))
_SKIPPED = LoadBalancerDecision(BLUE, skipped("HostnameOnly", "by hostname"))


@pytest.mark.parametrize(
    "desired",
    [
        Desired(load_balancers=(_SERVED, _SKIPPED)),
        Desired(names=(name("a.example.test", DecisionStatus.SERVED),)),
        Desired(names=(name("b.example.test", DecisionStatus.SKIPPED, "UserLine"),)),
        Desired(names=(replace(name("a.example.test", code="BadName"), load_balancer=None),)),
        # Servers that do not answer are not the owner's business: metrics and the log report them.
        Desired(names=(name("a.example.test", code="DnsTimeout"),)),
    ],
)
def test_what_is_no_business_of_the_owners_gets_no_event(desired: Desired) -> None:
    assert events(desired) == ()


@pytest.mark.parametrize(
    ("code", "count"), [("NotVerified", 9), ("TooManyHostnames", 3000), ("TooManyHostnamesInNamespace", 3000)]
)
def test_many_refused_names_make_one_event_that_shows_some(code: str, count: int) -> None:
    (found,) = events(Desired(names=tuple(name(f"n{at}.example.test", code=code) for at in range(count))))
    assert found.code == f"Name{code}"
    assert "n0.example.test (Ingress shop/site): because" in found.message
    assert found.message.endswith(f"; and {count - 5} more")


def test_a_name_of_a_megabyte_is_cut_in_the_message() -> None:
    """Anyone can write one into an object of a controller's own kind."""
    (found,) = events(Desired(names=(name("x" * 1_000_000, code="BadName"),)))
    assert found.message == f"{'x' * 256}... (Ingress shop/site): because"


def test_while_names_of_its_namespace_wait_for_dns_no_refused_name_gets_an_event() -> None:
    """The Event stays for an hour: it must name them all. No other namespace holds it back."""
    rejected, waiting = name("a.example.test"), ("b.example.test", DecisionStatus.SKIPPED, "NotAskedYet")
    assert events(Desired(names=(rejected, name(*waiting)))) == ()
    (found,) = events(Desired(names=(rejected, name("b.example.test"), name(*waiting, namespace="tenant"))))
    assert "a.example.test" in found.message
    assert "b.example.test" in found.message


def test_no_namespace_crowds_out_the_events_and_hostnames_of_another() -> None:
    """Of the few Events a minute, and of the few hostnames that an Event names, each has its turn."""
    many = [ObjectRef("Service", "a-tenant", f"lb{number}") for number in range(99)]
    honest = ObjectRef("Service", "zoo", "lb")
    bad = refused("BadAddress", "see the notes")
    found = events(Desired(load_balancers=tuple(LoadBalancerDecision(ref, bad) for ref in (*many, honest))))
    assert {event.service for event in found[:2]} == {many[0], honest}
    theirs = [name(f"a{number}.example.test", namespace="a-tenant") for number in range(99)]
    (event,) = events(Desired(names=(*theirs, name("z.example.test"))))
    assert "z.example.test (Ingress shop/site)" in event.message


def test_a_name_gets_an_event_in_words_that_are_the_same_on_all_nodes() -> None:
    """Each node may get other answers of DNS: the Event is one."""
    rejected = name("a.example.test", reason="DNS answers 192.0.2.7", stable="DNS answers otherwise")
    (found,) = events(Desired(names=(rejected,)))
    assert found.message == "a.example.test (Ingress shop/site): DNS answers otherwise"


@contextmanager
def recording(
    api: ApiServer, folder: Path, clock: Callable[[], float] = time.monotonic
) -> Iterator[EventRecorder]:
    with connected(api, folder) as connection:
        recorder = EventRecorder(connection, "n1", clock)
        recorder.start()
        yield recorder


def test_an_event_is_posted_once_an_hour_few_of_a_namespace_a_minute(api: ApiServer, tmp_path: Path) -> None:
    clock = Clock()
    tenant = [_event("a-tenant", number) for number in range(99)]
    with recording(api, tmp_path, clock) as recorder:
        recorder.record(tenant)
        api.traffic.wait_for_requests("create", "*/events", 5)
        recorder.record([*tenant, _event("shop", 0)])
        api.traffic.wait_for_requests("create", "*/events", 6)
        clock.pass_by(60)
        recorder.record([*tenant, _event("shop", 0)])
        api.traffic.wait_for_requests("create", "*/events", 11)
        clock.pass_by(3539)
        recorder.record([_event("shop", 0)])
        clock.pass_by(1)
        recorder.record([_event("shop", 0)])
        api.traffic.wait_for_requests("create", "*/events", 12)
    made = Counter(event["involvedObject"]["namespace"] for event in api.store.all("events"))
    assert made == {"a-tenant": 10, "shop": 1}  # the same one twice


def test_what_waited_for_a_minute_is_posted_without_another_pass(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_recorder, "_MINUTE", 0.2)
    with recording(api, tmp_path) as recorder:
        recorder.record([_event("tenant", number) for number in range(11)])
        api.traffic.wait_for_requests("create", "*/events", 11)


def test_a_hostname_that_is_verified_within_a_minute_makes_no_event(api: ApiServer, tmp_path: Path) -> None:
    clock = Clock()
    hasty, lasting = (_event("shop", number, "NameNotVerified") for number in range(2))
    with recording(api, tmp_path, clock) as recorder:
        recorder.record([hasty, lasting])
        clock.pass_by(59)
        recorder.record([lasting])
        clock.pass_by(1)
        recorder.record([lasting])
        api.traffic.wait_for_requests("create", "*/events", 1)
    assert [event["involvedObject"]["name"] for event in api.store.all("events")] == ["lb1"]


def _event(namespace: str, number: int, code: str = "BadName") -> PendingEvent:
    return PendingEvent(ObjectRef("Service", namespace, f"lb{number}"), code, "x", "")
