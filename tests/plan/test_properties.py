"""For any history: what is planned hangs together, and a planner that remembers decides the same."""

from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from random import Random
from string import ascii_lowercase, digits
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nodeagent.agent.convergence import defer_until_ready
from nodeagent.model.addresses import canonical
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired
from nodeagent.plan.balancers.eligibility import listed_paths
from nodeagent.plan.planner import Planner, plan
from tests.plan.histories import History, Moment
from tests.plan.tenant_worlds import COLLECTIONS, EPOCH

EXAMPLES = settings(max_examples=4 * settings().max_examples, deadline=None)


def moment(seed: int) -> Moment:
    return list(History(seed).moments(seed % 12 + 1))[-1]


def planned(at: Moment) -> Desired:
    return plan(at.snapshot, at.facts, at.config)


moments = st.integers(0, 10**9).map(moment)
with_own_relay = moments.filter(lambda at: at.config.relay.kind == "node")


def is_hostname(name: str) -> bool:
    """RFC 1123, said again without a regular expression."""
    labels = name.removeprefix("*.").split(".")
    letters = set(ascii_lowercase + digits + "-")
    return (
        len(name) <= 253
        and all(0 < len(label) < 64 and set(label) <= letters for label in labels)
        and not any(label.startswith("-") or label.endswith("-") for label in labels)
        and not labels[-1].isdigit()
    )


@given(moments, st.randoms(use_true_random=False))
@EXAMPLES
def test_the_order_of_the_input_does_not_matter(at: Moment, order: Random) -> None:
    """The API lists objects in any order."""

    def shuffled(values: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a field's value
        return tuple(order.sample(values, len(values)))

    names = (*COLLECTIONS, "ingress_classes", "namespaces", "unreadable", "relay_endpoints")
    other: dict[str, Any] = {name: shuffled(getattr(at.snapshot, name)) for name in names}
    facts = replace(at.facts, addresses=shuffled(at.facts.addresses))
    assert plan(replace(at.snapshot, **other), facts, at.config) == planned(at)


@given(with_own_relay.map(planned))
@EXAMPLES
def test_what_is_planned_hangs_together(found: Desired) -> None:
    """No two listeners on one bind; every pointer has something to point to."""
    binds = [listener.bind for listener in found.listeners]
    assert len(set(binds)) == len(binds)
    # Every redirect leads to a listener that adds the header.
    assert {redirect.to for redirect in found.dnat.redirects} <= {
        listener.bind for listener in found.listeners if listener.proxy
    }
    matches = [redirect.match for redirect in found.dnat.redirects]
    assert len(set(matches)) == len(matches)
    standing = {relay.address for relay in found.addresses}
    assert standing == {bind.address for bind in binds}
    assert len(standing) == len(found.addresses)
    assert {line.address for line in found.hosts} <= standing
    assert len(set(found.hosts)) == len(found.hosts)


@given(moments)
@EXAMPLES
def test_every_name_written_is_a_hostname_that_is_allowed_or_verified(at: Moment) -> None:
    found, facts, options = planned(at), at.facts, at.config.hosts
    codes = {each.name: each.code for each in found.names if each.status is DecisionStatus.SERVED}
    for line in found.hosts:
        assert is_hostname(line.name)
        assert facts.takes_wildcards or not line.name.startswith("*")
        allowed = any(f".{line.name}".endswith(f".{suffix}") for suffix in options.allow)
        assert allowed or (
            options.verify == "dns" and codes[line.name] in {"Verified", "Kept", "KeptUnasked"}
        )
        assert not any(f".{line.name}".endswith(f".{suffix}") for suffix in options.exclude)
        assert line.name not in facts.user_names
        assert line.name not in facts.node_names | facts.api_server_names
        assert options.enabled


@given(moments)
@EXAMPLES
def test_nothing_that_must_not_be_redirected_is(at: Moment) -> None:
    """The API server, the loopback, a ClusterIP, what no one listed and no annotation tells."""
    found, options = planned(at), at.config.load_balancers
    listed = {entry.path for entry in options.services}
    services = {each.ref: each for each in at.snapshot.services}
    cluster_ips = {address for each in services.values() for address in each.cluster_ips}
    own = set(at.snapshot.node.addresses if at.snapshot.node else ())
    for redirect in found.dnat.redirects:
        address, service = redirect.match.address, services[redirect.load_balancer]
        assert redirect.match not in at.facts.api_servers
        assert address not in cluster_ips
        assert not address.is_loopback
        assert not address.is_link_local
        trusted = service.ref.path in listed
        assert trusted or (options.detect and service.annotations)
        assert at.config.dnat.backend != "none"
        # externalIPs count for a listed Service, but not the node's own.
        assert address in service.load_balancer_ips or (trusted and address in service.external_ips)
        assert address not in own or (trusted and address in service.load_balancer_ips)
    for relay in found.addresses:
        assert relay.address in at.config.relay.ipv4 or relay.address in at.config.relay.ipv6
        assert relay.address not in {each.address for each in at.facts.addresses if not each.ours}


@given(moments)
@EXAMPLES
def test_every_object_has_a_status_and_a_reason(at: Moment) -> None:
    """One for each Service, at least one for each name; each a line of its own."""
    found = planned(at)
    decided = [decision.load_balancer for decision in found.load_balancers]
    assert decided == sorted(service.ref for service in at.snapshot.services)
    asked = {canonical(host) for each in at.snapshot.ingresses for host in each.hosts}
    assert asked <= {decision.name for decision in found.names}
    reasons = [decision.reason for decision in (*found.load_balancers, *found.names)]
    reasons += [remark for decision in found.load_balancers for remark in decision.remarks]
    assert all(reason and reason.isprintable() for reason in reasons)
    served = [decision.name for decision in found.names if decision.status is DecisionStatus.SERVED]
    assert sorted(served) == sorted({line.name for line in found.hosts})


@given(moments, st.integers(0, 10**9))
@EXAMPLES
def test_a_newer_service_changes_nothing_for_the_older_ones(at: Moment, seed: int) -> None:
    """Neither their relay addresses, nor their redirects, nor their decisions; unless it is listed.

    In a range that is used up, the first of its namespace has a place before the later ones of others.
    """
    listed = listed_paths(at.config)
    newcomers = [each for each in moment(seed).snapshot.services if each.ref.path not in listed]
    known = {each.ref for each in at.snapshot.services}
    # The API server gives each ClusterIP once, and out of its range.
    news: dict[str, Any] = {"created": EPOCH + timedelta(days=1), "cluster_ips": (ip_address("10.96.0.9"),)}
    late = [replace(each, **news) for each in newcomers if each.ref not in known]
    before = planned(at)
    after = plan(replace(at.snapshot, services=(*at.snapshot.services, *late)), at.facts, at.config)
    assume(all(each.code != "RangeExhausted" for each in after.load_balancers))
    new = {each.ref for each in late}

    def of_others(found: Desired) -> list[object]:
        parts = (found.load_balancers, found.dnat.redirects, found.listeners)
        return [[each for each in part if each.load_balancer not in new] for part in parts]

    assert of_others(after) == of_others(before)


@given(with_own_relay.map(planned), st.randoms(use_true_random=False))
@EXAMPLES
def test_nothing_is_left_that_points_to_a_silent_relay(found: Desired, chance: Random) -> None:
    binds = [listener.bind for listener in found.listeners]
    answering = {bind for bind in binds if chance.random() < 0.5}
    left = defer_until_ready(found, answering)
    assert {redirect.to for redirect in left.dnat.redirects} <= answering
    assert {line.address for line in left.hosts} <= {bind.address for bind in answering}
    assert set(left.dnat.redirects) <= set(found.dnat.redirects)
    assert set(left.hosts) <= set(found.hosts)
    # What waits is asked of DNS all the same, or its verification would be forgotten.
    kept = ("addresses", "listeners", "questions")
    assert [getattr(left, part) for part in kept] == [getattr(found, part) for part in kept]
    served = {decision.name for decision in left.names if decision.status is DecisionStatus.SERVED}
    assert served == {line.name for line in left.hosts}
    assert defer_until_ready(found, set(binds)) == found


@given(st.integers(0, 10**9))
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_warm_equals_fresh(seed: int) -> None:
    """After each step of a random history of the cluster, the node, DNS and the configuration."""
    history = History(seed)
    planner, config = None, None
    for moment in history.moments(12):
        if planner is None or moment.config is not config:
            planner, config = Planner(moment.config), moment.config
        warm = planner.plan(moment.snapshot, moment.facts)
        assert warm == plan(moment.snapshot, moment.facts, moment.config)
        history.remember(warm)
