"""Non-interference: what one tenant writes into its namespace changes nothing for anyone else.

For any cluster S and any objects T of one namespace, plan(S + T), restricted to the load balancers,
redirects, listeners and hostnames of others, equals plan(S). What is exempt is written down here, one
function each.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.components.hosts.block import addresses_by_name
from nodeagent.config.options import LimitOptions
from nodeagent.coredns.editing import decide
from nodeagent.coredns.managed_block import block_names
from nodeagent.model import objects as model
from nodeagent.model.addresses import IPAddress, canonical, is_wildcard
from nodeagent.model.decisions import DecisionStatus, NameDecision
from nodeagent.model.desired import Desired
from nodeagent.plan.names.claims import Claim
from nodeagent.plan.names.matching import ClaimPlanner
from nodeagent.plan.planner import plan
from tests.plan.tenant_worlds import TENANT, World, make_world

EXAMPLES = settings(max_examples=5 * settings().max_examples)

seeds = st.integers(0, 10**9)
Answers = Mapping[str, frozenset[IPAddress]]


# What is exempt.


def first_at(world: World) -> frozenset[IPAddress | str]:
    """An address, or a load balancer's hostname, belongs to the first that publishes it with TCP ports.

    The listed come first, then the oldest: the tenant's, if it is older, or if no other one has the address.
    """
    listed = {entry.path for entry in world.config.load_balancers.services}
    listed -= {entry.path for entry in world.config.load_balancers.ignore}
    everyone = sorted(
        (*world.cluster.services, *world.tenant.services),
        key=lambda each: (not each.tcp_ports, each.ref.path not in listed, model.by_age(each)),
    )
    owners: dict[IPAddress | str, str] = {}
    for service in everyone:
        for where in published(service, trusted=service.ref.path in listed):
            owners.setdefault(where, service.ref.namespace)
    return frozenset(where for where, namespace in owners.items() if namespace == TENANT)


def published(service: model.Service, *, trusted: bool) -> Iterable[IPAddress | str]:
    yield from service.load_balancer_ips
    yield from (point.hostname for point in service.points if point.hostname)
    if trusted:
        yield from service.external_ips


def shares_an_address(world: World) -> frozenset[model.ObjectRef]:
    """The Services of others at an address that an older Service of the tenant publishes, too.

    One that has lost it takes less of its namespace's share (capacity): younger ones of the namespace that
    the share leaves out, with or without the tenant, are exempt as well.
    """
    lost = first_at(world)
    sharing = frozenset(
        service.ref
        for service in world.cluster.services
        if lost.intersection(published(service, trusted=True))
        or any(
            model.by_age(mine) < model.by_age(service)
            and set(published(mine, trusted=False)).intersection(published(service, trusted=True))
            for mine in world.tenant.services
        )
    )
    left_out = {
        each.load_balancer
        for planned in ((world.before, world.after) if sharing else ())
        for each in planned.load_balancers
        if each.code in {"TooManyLoadBalancers", "TooManyListeners"}
    }
    return sharing | frozenset(
        service.ref
        for service in world.cluster.services
        if service.ref in left_out
        and any(
            each.ref in sharing
            and each.ref.namespace == service.ref.namespace
            and model.by_age(each) < model.by_age(service)
            for each in world.cluster.services
        )
    )


def claimed_by_the_tenant(world: World) -> frozenset[str]:
    """Two claims to the same hostname: DNS decides; if it can't, the oldest.

    That others keep such a name where DNS does not speak for the tenant is a property of its own, below.
    """
    alone = plan(world.tenant, world.facts, world.config).names
    among_others = (each for each in world.after.names if each.claimed_by.namespace == TENANT)
    return frozenset(each.name for each in (*alone, *among_others))


def names_the_tenants_address(world: World) -> frozenset[str]:
    """The hostnames of objects whose own status names an address that is the tenant's.

    The same of objects without a status, whose class such a status shows: others state it themselves. If the
    tenant's load balancer comes before others, these count for their namespace's share from then on
    (capacity): so the hostnames that it leaves out, too.
    """
    lost = first_at(world)
    telling = [ingress for ingress in world.cluster.ingresses if names_one_of(ingress.points, lost)]
    classes = {ingress.class_name for ingress in telling}
    found = {
        canonical(host)
        for ingress in world.cluster.ingresses
        if ingress in telling or (not ingress.points and ingress.class_name in classes)
        for host in ingress.hosts
    }
    routes = (each for each in world.cluster.controller_routes if names_one_of(each.points, lost))
    found |= {canonical(host) for route in routes for host in route.hosts}
    if any(names_one_of(gateway.points, lost) for gateway in world.cluster.gateways):
        found |= routed(world)
    return frozenset(found | (left_out(world, found) if before_others(world) else frozenset()))


def left_out(world: World, told: set[str]) -> frozenset[str]:
    """The hostnames that the share of a namespace leaves out, where the namespace has one of these."""
    namespaces = {each.ref.namespace for each in claims_in(world) if told.intersection(each.names)}
    return frozenset(
        each.name
        for each in (world.after.names if namespaces else ())
        if each.code == "TooManyHostnamesInNamespace" and each.claimed_by.namespace in namespaces
    )


def judged_by_what_is_older(world: World) -> frozenset[str]:
    """The hostnames of objects that say nothing of their own load balancer.

    Without a status, an object is served by what older objects tell, the first load balancer with PROXY, or
    the one that DNS chooses: any of these may be the tenant's. What a younger tenant can't take is a
    property of its own, below.
    """
    found = {
        canonical(host) for ingress in world.cluster.ingresses if not ingress.points for host in ingress.hosts
    }
    found |= {canonical(host) for route in world.cluster.controller_routes for host in route.hosts}
    if not all(gateway.points for gateway in world.cluster.gateways):
        found |= routed(world)
    return frozenset(found)


def routed(world: World) -> frozenset[str]:
    return frozenset(name for each in claims_in(world) if each.ref.kind == "HTTPRoute" for name in each.names)


def claims_in(world: World) -> Iterable[Claim]:
    return chain(*ClaimPlanner(LimitOptions()).collect(world.cluster)[0].values())


def names_one_of(points: Iterable[model.LoadBalancerPoint], where: frozenset[IPAddress | str]) -> bool:
    """Whether a status names an address or hostname that is the tenant's."""
    return any(not where.isdisjoint({each.ip, each.hostname}) for each in points)


# What holds.


def load_balancers(planned: Desired, exempt: frozenset[model.ObjectRef], *, relayed: bool) -> list[object]:
    """What is done for the others' load balancers; without relay addresses, if these are not compared."""
    addresses = {each.load_balancer: each.relay_addresses for each in planned.load_balancers}
    return [
        (
            replace(each, relay_addresses=each.relay_addresses if relayed else ()),
            [
                (redirect.match, redirect.to if relayed else redirect.to.port)
                for redirect in planned.dnat.redirects
                if redirect.load_balancer == each.load_balancer
            ],
            [
                (listener.bind if relayed else listener.bind.port, listener.server, listener.proxy)
                for listener in planned.listeners
                if listener.load_balancer == each.load_balancer
            ],
            len(addresses[each.load_balancer]),
        )
        for each in planned.load_balancers
        if each.load_balancer.namespace != TENANT and each.load_balancer not in exempt
    ]


def names(planned: Desired, exempt: frozenset[str]) -> dict[object, object]:
    """What is decided for hostnames, and for which load balancer; the words of the reason may differ."""
    return {
        (each.name, each.claimed_by, each.load_balancer): (each.status, each.code)
        for each in planned.names
        if each.name not in exempt
    }


@given(seeds)
@EXAMPLES
def test_a_younger_tenant_changes_nothing_for_the_load_balancers_of_others(seed: int) -> None:
    """Nothing is exempt: not a relay address, not a remark."""
    world = make_world(seed, oldest=6)
    before, after = world.before, world.after
    nobody = frozenset[model.ObjectRef]()
    assert load_balancers(after, nobody, relayed=True) == load_balancers(before, nobody, relayed=True)


@given(seeds)
@EXAMPLES
def test_a_tenant_of_any_age_changes_only_what_is_its_own(seed: int) -> None:
    """Exempt: addresses that it was first to publish, and which relay address another one has: see below."""
    world = make_world(seed)
    exempt = shares_an_address(world)
    if world.config.relay.kind == "service":
        return  # One relay Service serves one load balancer: the first. See the younger tenant.
    before, after = world.before, world.after
    assert load_balancers(after, exempt, relayed=False) == load_balancers(before, exempt, relayed=False)


@given(seeds)
@EXAMPLES
def test_a_relay_address_moves_only_for_an_older_load_balancer_and_a_listed_one_never(seed: int) -> None:
    """What the property above leaves out, said exactly (docs/decisions/0004).

    Exempt: one that loses or gains a family with an address that it shares.
    """
    world = make_world(seed)
    if world.config.relay.kind == "service":
        return
    exempt = shares_an_address(world)
    listed = {entry.path for entry in world.config.load_balancers.services}
    listed -= {entry.path for entry in world.config.load_balancers.ignore}
    ages = {each.ref: model.by_age(each) for each in (*world.cluster.services, *world.tenant.services)}
    before, after = (
        {each.load_balancer: each.relay_addresses for each in planned.load_balancers if each.relay_addresses}
        for planned in (world.before, world.after)
    )
    # Served here or on another node: a relay address is the same on all.
    older = min((ages[each.ref] for each in world.tenant.services), default=None)
    for ref in () if exempt else before:
        if before[ref] != after.get(ref):
            assert ref.path not in listed
            assert older is not None
            assert older < ages[ref]


@given(seeds)
@EXAMPLES
def test_hostnames_of_others_stay_with_their_load_balancers(seed: int) -> None:
    """Exempt: what the tenant claims as well, and what is judged by what is older, see above."""
    world = make_world(seed)
    exempt = claimed_by_the_tenant(world) | judged_by_what_is_older(world) | names_the_tenants_address(world)
    if world.config.relay.kind == "service" and before_others(world):
        return
    lost = shares_an_address(world)
    # Claimed for load balancers that lost an address: the next claim may count.
    exempt |= {each.name for each in world.before.names if each.load_balancer in lost}
    assert names(world.after, exempt) == names(world.before, exempt)


def before_others(world: World) -> bool:
    """Whether a Service of the tenant may come before those of others (shared capacity: the oldest first)."""
    return any(
        model.by_age(mine) < model.by_age(each)
        for mine in world.tenant.services
        for each in world.cluster.services
    )


@given(seeds)
@EXAMPLES
def test_a_younger_claim_takes_a_hostname_only_if_dns_speaks_for_it(seed: int) -> None:
    """Also where an object of others has no status, is excluded, or its load balancer is not served."""
    world = make_world(seed, oldest=6)
    if world.config.relay.kind == "service":
        return
    mine, exempt = first_at(world), names_the_tenants_address(world)
    after = world.after
    written: dict[str, set[IPAddress]] = {}
    for line in after.hosts:
        written.setdefault(line.name, set()).add(line.address)
    for decision in world.before.names:
        if decision.status is not DecisionStatus.SERVED or decision.name in exempt:
            continue
        answer = world.facts.dns.get(decision.name)
        if answer and (mine | addresses_given(after, decision.name)).intersection(answer.latest.addresses):
            continue
        kept = {line.address for line in world.before.hosts if line.name == decision.name}
        assert written.get(decision.name) == kept


def addresses_given(planned: Desired, name: str) -> frozenset[IPAddress]:
    """The addresses of the load balancer that the tenant has a hostname for: its own or another one."""
    given = {each.load_balancer for each in planned.names if each.name == name and is_won(each)}
    found = [each.addresses for each in planned.load_balancers if each.load_balancer in given]
    return frozenset(address for each in found for address in each)


def is_won(decision: NameDecision) -> bool:
    return decision.claimed_by.namespace == TENANT and decision.status is DecisionStatus.SERVED


@given(seeds)
@EXAMPLES
def test_no_older_claim_vetoes_a_hostname_that_dns_confirms(seed: int) -> None:
    """Neither one that is excluded, nor one whose load balancer is not served, nor any other of the tenant's.

    Exempt: DNS names an address of the tenant's as well, or confirms an older claim of the tenant's for
    another one's load balancer; the load balancer lost its address, see above.
    """
    world = make_world(seed)
    if world.config.relay.kind == "service":
        return
    mine, lost = first_at(world), shares_an_address(world)
    exempt = names_the_tenants_address(world)
    written = {
        each.name: each.load_balancer for each in world.after.names if each.status is DecisionStatus.SERVED
    }
    for decision in world.before.names:
        answer = world.facts.dns.get(decision.name)
        if decision.code != "Verified" or decision.load_balancer in lost or decision.name in exempt:
            continue
        theirs = addresses_given(world.after, decision.name) if older_for(world, decision) else frozenset()
        if answer and not (mine | theirs).intersection(answer.latest.addresses):
            assert written.get(decision.name) == decision.load_balancer
            assert decision.name in world.after.questions


def older_for(world: World, decision: NameDecision) -> bool:
    """Whether the tenant has the hostname after all, by an object older than the one that had it."""
    both = world.both
    claims = chain[model.ClusterObject](both.ingresses, both.routes, both.controller_routes, both.services)
    ages = {each.ref: model.by_age(each) for each in claims}
    return any(
        each.name == decision.name and is_won(each) and ages[each.claimed_by] < ages[decision.claimed_by]
        for each in world.after.names
    )


def in_hosts_file(planned: Desired, world: World, standing: str) -> tuple[str, Answers]:
    lines = "".join(f"{line.address} {line.name}\n" for line in planned.hosts)
    return lines, addresses_by_name(lines.encode())


def in_coredns(planned: Desired, world: World, standing: str) -> tuple[str, Answers]:
    """The Corefile, and what its block answers."""
    both = world.both
    claiming = chain[model.ClusterObject](both.ingresses, both.routes, both.controller_routes)
    ages = {each.ref: model.by_age(each) for each in claiming}
    data = {
        "kube-system/coredns": {"Corefile": standing or ".:53 {\n    errors\n    forward . 192.0.2.53\n}\n"}
    }
    edits = decide(planned, data, world.config, adopt=False, ages=ages)
    text = edits.edits[0].after or ""
    return text, block_names([text])


@pytest.mark.parametrize("sink", [in_hosts_file, in_coredns])
@given(seed=seeds)
@EXAMPLES
def test_without_dns_a_tenant_of_any_age_moves_no_hostname_that_is_written(
    sink: Callable[[Desired, World, str], tuple[str, Answers]], seed: int
) -> None:
    """Whatever it adds, edits or has made long ago, a trusted hostname of others stays where it is.

    Exempt: load balancers that share an address with an older one of the tenant's, and objects whose own
    status names the tenant's address; in CoreDNS a wildcard that the tenant, too, claims for the load
    balancer that has it.
    """
    world = make_world(seed)
    facts = replace(world.facts, dns={}, takes_wildcards=sink is in_coredns)
    before = plan(world.cluster, facts, world.config)
    text, answered = sink(before, world, "")
    was = {each.address: each.load_balancer for each in before.addresses}
    standing = replace(facts, standing_names=answered, standing_at=was)
    after = plan(world.both, standing, world.config)
    left = sink(after, world, text)[1]
    now = {each.address: each.load_balancer for each in after.addresses}
    lost = shares_an_address(world)
    exempt = names_the_tenants_address(world) | {
        each.name for each in before.names if each.load_balancer in lost
    }
    if sink is in_coredns:
        exempt |= {each.name for each in after.names if is_wildcard(each.name) and is_won(each)}
    if world.config.relay.kind == "service" and before_others(world):
        return
    for name in answered.keys() - exempt:  # whatever relay address it has: see above
        assert {was.get(each, each) for each in answered[name]} == {
            now.get(each, each) for each in left.get(name, ())
        }
