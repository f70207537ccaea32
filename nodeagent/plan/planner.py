"""The complete decision, made of the decisions in the other modules; and what of it waits for the relay."""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from itertools import chain
from operator import attrgetter

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress, IPNetwork, canonical
from nodeagent.model.desired import (
    DecisionStatus,
    Desired,
    DnatRules,
    DnsQuestion,
    LoadBalancerDecision,
    RelayAddress,
    refused,
)
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ControllerRoute, Gateway, Ingress, Route, Snapshot
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan, LoadBalancerPlanner
from nodeagent.plan.names.claims import ClaimPlanner
from nodeagent.plan.names.hostname_decisions import HostnamePlanner


class Planner:
    """Decides, and remembers its last decisions: what has not changed since is not decided again.

    The result depends only on the input, not on what it remembers. For two equal decisions, it returns the
    same object, so that others find changes as cheaply.

    Attributes:
        standing: the addresses of the lines of the last plan, by hostname: for `Facts.standing_names`.

    Args:
        config: the configuration.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._load_balancers = LoadBalancerPlanner(config)
        self._claims = ClaimPlanner(config.limits, config.load_balancers.ingress_classes)
        self._hostnames = HostnamePlanner(config)
        self.standing: Mapping[str, frozenset[IPAddress]] = {}

    def plan(self, snapshot: Snapshot, facts: Facts) -> Desired:
        """Return the desired state of the node; the same input in any order gives an equal value."""
        config = self._config
        if snapshot.node is not None:  # none of its names is ever written
            facts = replace(facts, node_names=facts.node_names | {*map(canonical, snapshot.node.names)})
        plans = self._load_balancers.plan(snapshot, facts)
        claims, notes = self._claims.plan(snapshot, plans)
        hostnames = self._hostnames.plan(claims, facts)
        self.standing = hostnames.standing
        listeners = tuple(listener for plan in plans for listener in plan.relayed.listeners)
        held = dict.fromkeys((listener.bind.address, listener.load_balancer) for listener in listeners)
        addresses = tuple(RelayAddress(address, ref) for address, ref in held)
        redirects = tuple(redirect for plan in plans for redirect in plan.relayed.redirects)
        pods = pod_ranges(snapshot, facts, config)
        used = {one.address.version for one in addresses}
        # Of the families in use, the relay's whole ranges: no other host may reach what listens there.
        guarded = tuple(each for each in (config.relay.ipv4, config.relay.ipv6) if each.version in used)
        return Desired(
            addresses=addresses,
            listeners=listeners,
            dnat=DnatRules(
                redirects if config.dnat.backend != "none" else (),
                pods.redirected,
                guarded,
                pods.admitted if guarded else (),
                users=config.relay.max_connections // _USERS_PART if guarded else 0,
            ),
            hosts=hostnames.hosts,
            load_balancers=tuple(plan.decision for plan in plans),
            names=hostnames.names,
            unreadable=tuple(sorted(snapshot.unreadable)),
            remarks=(
                *facts.notes,
                *(pods.remarks if addresses or redirects or hostnames.hosts else ()),
                *_missing_services(snapshot, config),
                *sorted(snapshot.not_covered),
                *sorted([*_problems(snapshot), *notes]),
            ),
            questions=_questions(hostnames.questions, plans),
        )


def plan(snapshot: Snapshot, facts: Facts, config: Config) -> Desired:
    """Return the desired state, decided from the beginning. Pure."""
    return Planner(config).plan(snapshot, facts)


_USERS_PART = 32
"""Of the relay's connections, what local users but root get in a family: half of the reserve in both."""


def _questions(
    claimed: Mapping[str, DnsQuestion], plans: Iterable[LoadBalancerPlan]
) -> Mapping[str, DnsQuestion]:
    """Return what to ask DNS, about hostnames that are claimed and about load balancers' own."""
    own = {
        name: DnsQuestion(frozenset(), plan.service.ref.namespace, plan.service.ref, every=True)
        for plan in plans
        for name in plan.own_names
    }
    return {**claimed, **own} if own else claimed


def _problems(snapshot: Snapshot) -> Iterator[str]:
    """Yield what is wrong with objects that claim hostnames, and with Gateways."""
    objects: Iterable[Gateway | Ingress | Route | ControllerRoute]
    objects = chain(snapshot.gateways, snapshot.ingresses, snapshot.routes, snapshot.controller_routes)
    for one in filter(attrgetter("problems"), objects):
        yield from (f"{one.ref}: {problem}" for problem in one.problems)


def _missing_services(snapshot: Snapshot, config: Config) -> Iterator[str]:
    """Yield a note for each Service that the configuration lists and that does not exist."""
    listed = config.load_balancers.services
    known = {service.ref.path for service in snapshot.services} if listed else set()
    for entry in listed:
        if entry.path not in known:
            near = get_close_matches(entry.path, sorted(known), 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            yield f"loadBalancers.services lists {entry.path}: there is no such LoadBalancer Service{hint}"


_CILIUM = (
    "Cilium's ranges",
    "kubectl get ciliumnodes -o custom-columns=NODE:.metadata.name,PODS:.spec.ipam.podCIDRs",
)
_CALICO = ("Calico's pools", "kubectl get ippools -o custom-columns=POOL:.spec.cidr")
_FROM_PODS_RANGES: Mapping[str, tuple[str, str]] = {
    "cilium_host": _CILIUM,
    "tunl0": _CALICO,
    "vxlan.calico": _CALICO,
    "vxlan-v6.calico": _CALICO,
    "wireguard.cali": _CALICO,
}
"""Interfaces to which a network plugin gives an address of the node's own pods, by its own IPAM. Cilium's
cluster-pool and Calico's IPAM take no notice of spec.podCIDRs (projectcalico/calico#2592). With each:
what to set instead, and what shows it."""


class PodRanges(Struct, frozen=True):
    """This node's pods: which are redirected, which may reach the relay, and what a person should know.

    Only its own pods are redirected: traffic from elsewhere may carry the PROXY header already. They may
    reach the relay even if they are not redirected, since CoreDNS can give them hostnames that lead there.
    """

    redirected: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()
    remarks: tuple[str, ...] = ()


def pod_ranges(snapshot: Snapshot, facts: Facts, config: Config) -> PodRanges:
    """Return the ranges of `dnat.podCIDRs`, or else the Node's, and notes on pods that nothing serves."""
    why = ""
    if config.dnat.backend == "none":
        why = "dnat.backend is none, and lines of the hosts file serve the node alone"
    elif not config.dnat.pods:
        why = "dnat.pods is false"
    by_coredns = config.coredns.serves_pods
    unserved = (
        f"pods are not served, cert-manager among them: {why}. CoreDNS can serve them (docs/coredns.md; the "
        "overlay cilium brings it); coredns.servesPods: true says that it does"
    )
    found: Iterable[IPNetwork] = [text.network for text in config.dnat.pod_cidrs]
    if not found and snapshot.node is not None:
        found = snapshot.node.pod_cidrs
    if not found:
        unknown = (
            f"this node's pods are not served: no pod range of node {facts.node_name!r} is known "
            "(its Node object is missing or has no spec.podCIDRs); set dnat.podCIDRs"
        )
        kept_out = (
            "the guard drops this node's pods' connections to the relay, to which CoreDNS sends them: no pod "
            f"range of node {facts.node_name!r} is known (no spec.podCIDRs, or no Node object); set "
            "dnat.podCIDRs"
        )
        return PodRanges(remarks=(unknown if not why else kept_out if by_coredns else unserved,))
    ipv4 = collapse_addresses(network for network in found if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in found if isinstance(network, IPv6Network))
    admitted: tuple[IPNetwork, ...] = (*ipv4, *ipv6)
    outside = _outside(facts, admitted)
    if why:
        return PodRanges(admitted=admitted, remarks=(*(() if by_coredns else (unserved,)), *outside))
    return PodRanges(admitted, admitted, outside)


def _outside(facts: Facts, admitted: Iterable[IPNetwork]) -> tuple[str, ...]:
    """Return what contradicts these ranges: an address that the network plugin took from the pods'."""
    found: dict[str, list[str]] = {}
    for each in facts.addresses:
        if each.interface not in _FROM_PODS_RANGES or each.address.is_link_local:
            continue
        if not any(each.address in network for network in admitted):
            found.setdefault(each.interface, []).append(str(each.address))
    return tuple(
        f"{interface} has {', '.join(sorted(addresses))}, outside of this node's known pod ranges "
        f"({', '.join(map(str, admitted))}): pods with such addresses are not served, and the guard drops "
        f"them. Set dnat.podCIDRs to {_FROM_PODS_RANGES[interface][0]}: {_FROM_PODS_RANGES[interface][1]}"
        for interface, addresses in sorted(found.items())
    )


_RELAY_DOWN = refused("RelayDown", "deferred: its relay does not answer")


def defer_until_ready(desired: Desired, ready: AbstractSet[Endpoint]) -> Desired:
    """Return the plan without the redirects and hosts lines whose relay is not among `ready`. Pure.

    A hosts line affects every port: it waits until all listeners of its address answer. Otherwise, another
    local program could have the missing one. The decisions say what is missing. Redirects and lines to a
    relay that is not this node's (an existing relay Service) are kept.
    """
    silent = {listener.bind for listener in desired.listeners} - ready
    if not silent:
        return desired
    dead = {bind.address for bind in silent}
    hosts = tuple(line for line in desired.hosts if line.address not in dead)
    written = {line.name for line in hosts}
    return replace(
        desired,
        dnat=replace(
            desired.dnat,
            redirects=tuple(redirect for redirect in desired.dnat.redirects if redirect.to not in silent),
        ),
        hosts=hosts,
        load_balancers=tuple(_remark(decision, silent, ready) for decision in desired.load_balancers),
        names=tuple(
            replace(decision, conclusion=_RELAY_DOWN)
            if decision.status is DecisionStatus.SERVED and decision.name not in written
            else decision
            for decision in desired.names
        ),
    )


def _remark(
    decision: LoadBalancerDecision, silent: AbstractSet[Endpoint], ready: AbstractSet[Endpoint]
) -> LoadBalancerDecision:
    missing = sorted(
        (bind for bind in silent if bind.address in decision.relay_addresses), key=Endpoint.sort_key
    )
    if not missing:
        return decision
    partly = any(bind.address in decision.relay_addresses for bind in ready)
    deferred = (f"deferred: no relay answers at {bind}" for bind in missing)
    conclusion = decision.conclusion if partly else _RELAY_DOWN
    return replace(decision, conclusion=conclusion, remarks=(*decision.remarks, *deferred))
