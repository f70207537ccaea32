"""What holds for every plan, whatever the cluster, the node and the configuration."""

from dataclasses import replace
from datetime import timedelta
from random import Random
from string import ascii_lowercase, digits

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.config.options import Config
from nodeagent.model.desired import Desired, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Service, Snapshot
from nodeagent.plan.planner import plan
from nodeagent.plan.readiness import defer_until_ready
from tests import strategies
from tests.plan.made_up import FACTS, service

EXAMPLES = settings(deadline=None)
plans = st.builds(plan, strategies.snapshots, strategies.facts, strategies.configs)


def is_hostname(name: str) -> bool:
    """RFC 1123, said again without a regular expression."""
    labels = name.split(".")
    letters = set(ascii_lowercase + digits + "-")
    return (
        len(name) <= 253
        and all(0 < len(label) < 64 and set(label) <= letters for label in labels)
        and not any(label.startswith("-") or label.endswith("-") for label in labels)
        and not labels[-1].isdigit()
    )


@given(strategies.snapshots, strategies.facts, strategies.configs, st.randoms(use_true_random=False))
@EXAMPLES
def test_the_order_of_the_input_does_not_matter(
    snapshot: Snapshot, facts: Facts, config: Config, order: Random
) -> None:
    """The API lists objects in any order."""
    shuffled = Snapshot(
        services=tuple(order.sample(snapshot.services, len(snapshot.services))),
        ingresses=tuple(order.sample(snapshot.ingresses, len(snapshot.ingresses))),
        node=snapshot.node,
        unreadable=tuple(order.sample(snapshot.unreadable, len(snapshot.unreadable))),
    )
    elsewhere = replace(facts, addresses=tuple(order.sample(facts.addresses, len(facts.addresses))))
    assert plan(shuffled, elsewhere, config) == plan(snapshot, facts, config)


@given(plans)
@EXAMPLES
def test_what_is_planned_hangs_together(planned: Desired) -> None:
    """No two listeners on one bind; every pointer has something to point to."""
    binds = [listener.bind for listener in planned.listeners]
    assert len(set(binds)) == len(binds)
    assert {redirect.to for redirect in planned.dnat.redirects} <= set(binds)
    matches = [redirect.match for redirect in planned.dnat.redirects]
    assert len(set(matches)) == len(matches)
    standing = {relay.address for relay in planned.addresses}
    assert standing == {bind.address for bind in binds}
    assert len(standing) == len(planned.addresses)
    assert {line.address for line in planned.hosts} <= standing
    assert len(set(planned.hosts)) == len(planned.hosts)


@given(strategies.snapshots, strategies.facts, strategies.configs)
@EXAMPLES
def test_every_name_written_is_a_hostname_that_is_allowed(
    snapshot: Snapshot, facts: Facts, config: Config
) -> None:
    """And belongs to no one else."""
    for line in plan(snapshot, facts, config).hosts:
        assert is_hostname(line.name)
        assert any(f".{line.name}".endswith(f".{suffix}") for suffix in config.hosts.allow)
        assert not any(f".{line.name}".endswith(f".{suffix}") for suffix in config.hosts.exclude)
        assert line.name not in facts.user_names
        assert line.name not in facts.node_names | facts.api_server_names
        assert config.hosts.enabled


@given(strategies.snapshots, strategies.facts, strategies.configs)
@example(
    Snapshot((service(annotations={"load-balancer.hetzner.cloud/uses-proxyprotocol": "true"}),)),
    FACTS,
    Config(),
)
@EXAMPLES
def test_nothing_that_must_not_be_redirected_is(snapshot: Snapshot, facts: Facts, config: Config) -> None:
    """The API server, the loopback, what no administrator listed and no annotation tells."""
    planned = plan(snapshot, facts, config)
    listed = {entry.path for entry in config.load_balancers.services}
    annotated = {found.ref: found.annotations for found in snapshot.services}
    for redirect in planned.dnat.redirects:
        assert redirect.match not in facts.api_servers
        assert not redirect.match.address.is_loopback
        assert redirect.load_balancer.path in listed or (
            config.load_balancers.detect and annotated[redirect.load_balancer]
        )
        assert config.dnat.backend != "none"
    for relay in planned.addresses:
        assert relay.address in config.relay.ipv4 or relay.address in config.relay.ipv6
        assert relay.address not in {each.address for each in facts.addresses if not each.ours}


@given(strategies.snapshots, strategies.facts, strategies.configs)
@EXAMPLES
def test_every_object_has_a_verdict_and_a_reason(snapshot: Snapshot, facts: Facts, config: Config) -> None:
    """One for each Service, at least one for each name; each a line of its own."""
    planned = plan(snapshot, facts, config)
    decided = [decision.load_balancer for decision in planned.load_balancers]
    assert decided == sorted(service.ref for service in snapshot.services)
    asked = {host.lower().removesuffix(".") for ingress in snapshot.ingresses for host in ingress.hosts}
    assert {decision.name for decision in planned.names} == asked
    reasons = [decision.reason for decision in planned.load_balancers]
    reasons += [decision.reason for decision in planned.names]
    reasons += [remark for decision in planned.load_balancers for remark in decision.remarks]
    assert all(reason and reason.isprintable() for reason in reasons)
    served = {decision.name for decision in planned.names if decision.verdict is Verdict.SERVED}
    assert served == {line.name for line in planned.hosts}


@given(strategies.snapshots, strategies.services, strategies.facts, strategies.configs)
@EXAMPLES
def test_a_newer_service_changes_nothing_for_the_older_ones(
    snapshot: Snapshot, newcomer: Service, facts: Facts, config: Config
) -> None:
    """Neither their relay addresses, nor their redirects, nor their decisions."""
    dated = [
        replace(service, created=service.created or strategies.EPOCH)
        for service in snapshot.services
        if service.ref != newcomer.ref
    ]
    before = plan(replace(snapshot, services=tuple(dated)), facts, config)
    late = replace(newcomer, created=strategies.EPOCH + timedelta(days=1))
    after = plan(replace(snapshot, services=(*dated, late)), facts, config)
    assert before.load_balancers == tuple(
        decision for decision in after.load_balancers if decision.load_balancer != late.ref
    )
    assert before.dnat.redirects == tuple(
        each for each in after.dnat.redirects if each.load_balancer != late.ref
    )
    assert before.listeners == tuple(each for each in after.listeners if each.load_balancer != late.ref)


@given(plans, st.randoms(use_true_random=False))
@EXAMPLES
def test_nothing_is_left_that_points_to_a_silent_relay(planned: Desired, chance: Random) -> None:
    """And nothing is invented."""
    binds = [listener.bind for listener in planned.listeners]
    answering = {bind for bind in binds if chance.random() < 0.5}
    left = defer_until_ready(planned, answering)
    assert {redirect.to for redirect in left.dnat.redirects} <= answering
    assert {line.address for line in left.hosts} <= {bind.address for bind in answering}
    assert set(left.dnat.redirects) <= set(planned.dnat.redirects)
    assert set(left.hosts) <= set(planned.hosts)
    assert (left.addresses, left.listeners) == (planned.addresses, planned.listeners)
    served = {decision.name for decision in left.names if decision.verdict is Verdict.SERVED}
    assert served == {line.name for line in left.hosts}


@given(plans)
@EXAMPLES
def test_nothing_is_withheld_when_every_relay_answers(planned: Desired) -> None:
    """The very plan."""
    assert defer_until_ready(planned, {listener.bind for listener in planned.listeners}) == planned


@given(strategies.snapshots, strategies.facts, strategies.configs)
@EXAMPLES
def test_an_external_ip_is_redirected_only_for_who_is_listed(
    snapshot: Snapshot, facts: Facts, config: Config
) -> None:
    """And never where it is the node's own or the API server's."""
    planned = plan(snapshot, facts, config)
    listed = {entry.path for entry in config.load_balancers.services}
    own = {endpoint.address for endpoint in facts.api_servers}
    own |= set(snapshot.node.addresses if snapshot.node else ())
    services = {service.ref: service for service in snapshot.services}
    for redirect in planned.dnat.redirects:
        service = services[redirect.load_balancer]
        if redirect.match.address not in service.load_balancer_ips:
            assert redirect.match.address in service.external_ips
            assert service.ref.path in listed
            assert redirect.match.address not in own


@given(strategies.snapshots, strategies.facts, strategies.configs)
@EXAMPLES
def test_what_sends_no_proxy_is_never_redirected(snapshot: Snapshot, facts: Facts, config: Config) -> None:
    """Every redirect leads to a listener that adds the line."""
    planned = plan(snapshot, facts, config)
    adding = {listener.bind for listener in planned.listeners if listener.proxy}
    assert {redirect.to for redirect in planned.dnat.redirects} <= adding
