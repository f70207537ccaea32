"""The complete decision, made of the decisions in the other modules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from operator import attrgetter

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPAddress, canonical
from nodeagent.model.desired import (
    Desired,
    DnatRules,
    DnsQuestion,
    RelayAddress,
    some_notes,
)
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ControllerRoute, Gateway, Ingress, Route, Snapshot
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan, LoadBalancerPlanner
from nodeagent.plan.balancers.pods import pod_ranges
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
        relays = [plan.relay for plan in plans if plan.relay is not None]
        listeners = tuple(listener for relay in relays for listener in relay.listeners)
        held = dict.fromkeys((listener.bind.address, listener.load_balancer) for listener in listeners)
        addresses = tuple(RelayAddress(address, ref) for address, ref in held)
        redirects = tuple(redirect for relay in relays for redirect in relay.redirects)
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
                interfaces=config.dnat.interfaces,
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
                *_pending(snapshot),
                *(() if config.hosts.enabled or hostnames.names else (_NO_HOSTNAMES,)),
                *sorted([*_problems(snapshot), *notes]),
            ),
            questions=_questions(hostnames.questions, plans),
            only_adds=bool(snapshot.pending),
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
    """Yield what is wrong with objects that claim hostnames, and with Gateways; of a namespace some of it."""
    objects: Iterable[Gateway | Ingress | Route | ControllerRoute]
    objects = chain(snapshot.gateways, snapshot.ingresses, snapshot.routes, snapshot.controller_routes)
    notes: dict[str, list[str]] = {}
    for one in filter(attrgetter("problems"), objects):
        notes.setdefault(one.ref.namespace, []).extend(f"{one.ref}: {problem}" for problem in one.problems)
    for namespace, its in notes.items():
        yield from some_notes(sorted(its), f" on objects of namespace {namespace}")


_NO_HOSTNAMES = "hostnames are not looked at: hosts.enabled is false"


def _pending(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note for each reason for which kinds were not read yet."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(snapshot.pending.items()):
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"nothing is removed until these kinds were read: {', '.join(names)} ({reason})"


def _missing_services(snapshot: Snapshot, config: Config) -> Iterator[str]:
    """Yield a note for each Service that the configuration lists and that does not exist."""
    listed = config.load_balancers.services
    known = {service.ref.path for service in snapshot.services} if listed else set()
    for entry in listed:
        if entry.path not in known:
            near = get_close_matches(entry.path, sorted(known), 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            yield f"loadBalancers.services lists {entry.path}: there is no such LoadBalancer Service{hint}"
