"""All claims of a cluster to hostnames, and the load balancer of each (docs/decisions/0014). Pure.

It is known by the object's own status, by the class that the configuration gives to a Service, or because
only one load balancer sends PROXY: the only one that is listed, if any is. Where there are several, DNS alone
chooses. Nothing that another object says counts. An object that stays keeps its claims.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, Self, TypeVar

from msgspec import Struct

from nodeagent.config.options import ClassService, LimitOptions
from nodeagent.model import objects as model
from nodeagent.model.addresses import IPAddress
from nodeagent.model.decisions import Conclusion, skipped, some_notes
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan
from nodeagent.plan.memory import Changed, Memory, Quota, changed_keys
from nodeagent.plan.names.claims import Claim, Considered, LoadBalancerHints, Parents, claims_of

_MOST_REMEMBERED = 4096
_Point = IPAddress | str
"""An address, or a hostname, in the status of an object."""


class Choice(Struct, frozen=True, eq=False):
    """Load balancers among which DNS can choose, by each address to which it, or a hosts line, can lead."""

    by_address: Mapping[IPAddress, LoadBalancerPlan]


class LoadBalancerMatch(Struct, frozen=True):
    """The load balancer of an object.

    Attributes:
        load_balancer, conclusion: None, and why, if there is none, or if only DNS can say which one it is.
        how: how it was found, unless by the object's own status or as the only candidate.
        named: whether the object or the configuration names it; else it is the only one.
        choice: those that DNS can choose instead.
    """

    load_balancer: LoadBalancerPlan | None
    conclusion: Conclusion | None = None
    how: str = ""
    named: bool = True
    choice: Choice | None = None


class LoadBalancerLookup:
    """Finds the load balancer of each object among these. Immutable.

    `configured` is the option `loadBalancers.ingressClasses`. If nothing says which one it is, DNS chooses
    among `choice`; an equal one of `before` stays the same object.
    """

    def __init__(
        self,
        load_balancers: tuple[LoadBalancerPlan, ...] = (),
        configured: Sequence[ClassService] = (),
        before: Self | None = None,
    ) -> None:
        self.load_balancers = load_balancers
        self._configured = {entry.ingress_class: entry for entry in reversed(configured)}
        self._by_path = {plan.service.ref.path: plan for plan in load_balancers}
        self._by_point = _by_point(load_balancers)
        self._by_gateway = {
            (plan.service.gateway_namespace or plan.service.ref.namespace, plan.service.gateway): plan
            for plan in sorted(load_balancers, key=_served_first, reverse=True)
            if plan.service.gateway
        }
        proxies = sorted((plan for plan in load_balancers if plan.proxy), key=lambda plan: plan.rank)
        listed = [plan for plan in proxies if plan.listed] or proxies
        self._sole = listed[0] if len(listed) == 1 else None
        self._any = bool(proxies)
        served = [plan for plan in proxies if plan.is_served]
        others = any(plan is not self._sole for plan in served)
        self.choice: Choice | None = _choice_of(served if others else (), before.choice if before else None)
        # Most objects say the same.
        self.match = lru_cache(_MOST_REMEMBERED)(self._find)

    def _find(self, hints: LoadBalancerHints) -> LoadBalancerMatch:
        """Return what an object's own hints and the configuration say: the first that says something."""
        if hints.unattached:
            return LoadBalancerMatch(None, skipped("NotAttached", hints.unattached))
        own = self._by_path.get(hints.service)
        if hints.gateway:  # what an implementation made for it has its label
            own = self._by_gateway.get((hints.gateway.namespace, hints.gateway.name))
        by_class = self._by_configured_class(hints)
        points = _keys(hints.points)
        if at_points := [sharers for key in points if (sharers := self._by_point.get(key))]:
            # If several Services share an address, the one that is named is meant; otherwise the first.
            named = (own, by_class.load_balancer if by_class else None)
            plans = [next((plan for plan in named if plan in sharers), sharers[0]) for sharers in at_points]
            # If it reports several addresses, the one that the relay serves is meant.
            return LoadBalancerMatch(min(plans, key=_served_first))
        if own is not None:
            return LoadBalancerMatch(own)
        if points:
            reported = ", ".join(sorted(map(str, points)))
            reason = f"{hints.status} names {reported}: no LoadBalancer Service with TCP ports publishes it"
            return LoadBalancerMatch(None, skipped("UnknownLoadBalancer", reason))
        if hints.problems:
            return LoadBalancerMatch(None, skipped("BadStatus", "; ".join(hints.problems)))
        return by_class or self._by_number(hints)

    def _by_number(self, hints: LoadBalancerHints) -> LoadBalancerMatch:
        """Return the only one that sends PROXY; of several, what DNS chooses."""
        if self._sole is not None:
            how = f"{self._sole.service.ref}, the only listed one" if self.choice else ""
            return LoadBalancerMatch(self._sole, how=how, named=False, choice=self.choice)
        if not self._any:
            reason = "no load balancer of this cluster is known to send PROXY"
            return LoadBalancerMatch(None, skipped("NoProxyLoadBalancer", reason))
        reason = (
            f"{hints.status} is empty, and several load balancers send PROXY: only DNS can say which one "
            "serves it, or loadBalancers.ingressClasses"
        )
        return LoadBalancerMatch(None, skipped("UnknownLoadBalancer", reason), choice=self.choice)

    def _by_configured_class(self, hints: LoadBalancerHints) -> LoadBalancerMatch | None:
        for name in (hints.ingress_class, hints.controller):
            entry = self._configured.get(name) if name else None
            if entry is None:
                continue
            plan = self._by_path.get(entry.path)
            if plan is not None:
                how = f"{plan.service.ref} by loadBalancers.ingressClasses ({name})"
                return LoadBalancerMatch(plan, how=how)
            reason = (
                f"loadBalancers.ingressClasses gives {name} to Service {entry.path}: "
                "no LoadBalancer Service has that name"
            )
            return LoadBalancerMatch(None, skipped("UnknownLoadBalancer", reason))
        return None


def _choice_of(plans: Sequence[LoadBalancerPlan], before: Choice | None) -> Choice | None:
    """`plans` are in order: if an address leads to several, the first has it. None for no plans."""
    by_address: dict[IPAddress, LoadBalancerPlan] = {}
    for plan in plans:
        for address in (*plan.own_addresses, *plan.hosts_addresses):
            by_address.setdefault(address, plan)
    if not plans:
        return None
    return before if before is not None and before.by_address == by_address else Choice(by_address)


def _by_point(load_balancers: Iterable[LoadBalancerPlan]) -> dict[_Point, list[LoadBalancerPlan]]:
    """Return the load balancers with TCP ports at each address and hostname, by precedence."""
    by_point: dict[_Point, list[LoadBalancerPlan]] = {}
    for plan in sorted(load_balancers, key=lambda plan: plan.rank):
        # Controllers report externalIPs too; those count for which the load balancer's own decision says so.
        for key in _keys(plan.service.points) | {*plan.decision.addresses} if plan.service.tcp_ports else ():
            by_point.setdefault(key, []).append(plan)
    return by_point


def _keys(points: Sequence[model.LoadBalancerPoint]) -> set[_Point]:
    keys: set[_Point] = {point.ip for point in points if point.ip is not None}
    return keys | {point.hostname.lower().removesuffix(".") for point in points if point.hostname}


def _served_first(plan: LoadBalancerPlan) -> tuple[bool, int]:
    return (not plan.is_served, plan.rank)


_Object = TypeVar("_Object")
_Claiming = TypeVar("_Claiming", model.Route, Claim)

_TIMES = 4
"""Several objects may claim a hostname: for example, one for each of its paths."""
_FEWEST = 1000
_MOST_COMPARISONS = 500_000
"""A Route with one hostname and a Gateway of 64 listeners takes 64."""


class MatchedClaim(Struct, frozen=True, gc=False):
    """A claim and its load balancer."""

    claim: Claim
    match: LoadBalancerMatch

    def order(self) -> tuple[Any, ...]:
        """Return what sorts all of them: the oldest first, of one Route's the one that is relayed.

        The rest distinguishes objects of two API groups that have the same name.
        """
        claim, plan = self.claim, self.match.load_balancer
        place = (True, 0) if plan is None else (not plan.is_served, plan.rank)
        rest = (claim.hints.controller or "", claim.names, claim.excluded or "")
        return (*claim.age, *place, claim.number, *rest)

    def place(self) -> tuple[Any, ...]:
        """Return what sorts the hostnames of all claims for their places within the limits, before the names.

        The later of two ages counts: the claim's and its load balancer's, if that is named.
        """
        plan, own = self.match.load_balancer, self.claim.age
        age = max(own, model.by_age(plan.service)) if plan is not None and self.match.named else own
        return (age, self.order())


ClaimsByName = Mapping[str, tuple[MatchedClaim, ...]]
_Claimed = Mapping[int, tuple[Claim, ...]]
"""The claims of each object, by its id, which no other has while a memory holds it: its hash takes longer."""


class ClaimPlanner:
    """Finds the claims of a Snapshot's objects, and the load balancer of each.

    The youngest Routes and claims of a namespace are left out if its older ones take far more than it can
    get: a claimed hostname takes about 30 bytes of an object's text, and over a kilobyte of the agent's
    memory. A Route may have 32 parents of 64 listeners and 16 hostnames, which takes milliseconds.
    """

    def __init__(self, limits: LimitOptions, configured: Sequence[ClassService] = ()) -> None:
        self._configured = configured
        self._parents = Parents()
        self._parents_made_of: tuple[object, ...] = ((), (), ())
        self._lookup = LoadBalancerLookup((), configured)
        self._claimed: Memory[int, tuple[Claim, ...]] = Memory()
        self._considered: Memory[int, Considered] = Memory()
        self._matched: Memory[int, tuple[MatchedClaim, ...]] = Memory()
        self._by_object: Mapping[int, tuple[MatchedClaim, ...]] = {}
        self._by_name: ClaimsByName = {}
        self._route_shares: Quota[int, model.Route] = Quota(_MOST_COMPARISONS, model.by_age)
        most = max(_FEWEST, _TIMES * limits.hostnames_per_namespace)
        self._claim_shares: Quota[int, Claim] = Quota(most, _order)
        self._snapshot: model.Snapshot | None = None
        self._notes: Sequence[str] = ()

    def plan(
        self, snapshot: model.Snapshot, load_balancers: tuple[LoadBalancerPlan, ...]
    ) -> tuple[ClaimsByName, Sequence[str]]:
        """Return the claims to each hostname, and notes on what of the objects is wrong or left out."""
        lookup = self._lookup
        if load_balancers is not lookup.load_balancers:
            lookup = LoadBalancerLookup(load_balancers, self._configured, lookup)
        if snapshot is not self._snapshot or lookup is not self._lookup:
            claimed, self._notes = self.collect(snapshot)
            matched = self._matched.results(
                lambda _, claims: tuple(MatchedClaim(claim, lookup.match(claim.hints)) for claim in claims),
                claimed,
                context=lookup,
            )
            self._by_name = self._indexed(matched)
            self._snapshot, self._lookup = snapshot, lookup
        return self._by_name, self._notes

    def collect(self, snapshot: model.Snapshot) -> tuple[_Claimed, Sequence[str]]:
        """Return the claims, and the notes."""
        classes = snapshot.ingress_classes
        made_of = (snapshot.gateways, snapshot.listener_sets, snapshot.namespaces)
        if snapshot.routes and made_of != self._parents_made_of:
            self._parents, self._parents_made_of = Parents(*made_of), made_of
        parents = self._parents
        considered = self._considered.results(
            lambda _, route: parents.considered(route), _by_id(snapshot.routes), context=parents
        )
        weights = [considered[id(route)].comparisons for route in snapshot.routes]
        left_out = _beyond(self._route_shares, snapshot.routes, weights)
        routes = [route for route in snapshot.routes if id(route) not in left_out]
        notes = [*_problems(snapshot)]
        notes += [
            f"namespace {namespace}: {count} of its Routes are not considered: older ones take "
            f"{_MOST_COMPARISONS} comparisons of hostnames with listeners, or more"
            for namespace, count in Counter(chain(*left_out.values())).items()
        ]
        services = [
            service
            for service in snapshot.services
            if any(key in service.annotations for key in model.EXTERNAL_DNS)
        ]
        claimed = self._claimed.results(
            lambda _, claimant, __: claims_of(claimant, classes, parents),
            _by_id((*snapshot.ingresses, *routes, *snapshot.controller_routes, *services)),
            considered,
            context=classes,
        )
        claims = [*chain.from_iterable(claimed.values())]
        left_out = _beyond(self._claim_shares, claims, [*map(len, map(attrgetter("names"), claims))])
        if left_out:
            claimed = {
                key: tuple(claim for claim in group if id(claim) not in left_out)
                for key, group in claimed.items()
            }
        notes += [
            f"namespace {namespace}: {count} of its claims to hostnames are not considered: older ones "
            f"name {self._claim_shares.share} or more (limits.hostnamesPerNamespace)"
            for namespace, count in Counter(chain(*left_out.values())).items()
        ]
        return claimed, notes

    def _indexed(self, matched: Mapping[int, tuple[MatchedClaim, ...]]) -> ClaimsByName:
        """Return the claims by hostname; only what changed is sorted in."""
        before, self._by_object, known = self._by_object, matched, self._by_name
        changed = changed_keys(before, matched)
        if 4 * len(changed) > len(matched):  # from the beginning, without sorting in
            before, known, changed = {}, {}, matched.keys()
        gone: set[int] = set()
        added: dict[str, list[MatchedClaim]] = {}
        for key in changed:
            for entry in before.get(key, ()):
                gone.add(id(entry))
                for name in entry.claim.names:
                    added.setdefault(name, [])
            for entry in matched.get(key, ()):
                for name in entry.claim.names:
                    added.setdefault(name, []).append(entry)
        for name, claims in added.items():
            claims[:0] = [entry for entry in known.get(name, ()) if id(entry) not in gone]
        claimed = {name: tuple(claims) for name, claims in added.items() if claims}
        return Changed(known, claimed, (added.keys() & known.keys()) - claimed.keys())


def _problems(snapshot: model.Snapshot) -> Iterator[str]:
    """Yield what is wrong with objects that claim hostnames, and with Gateways; of a namespace some of it."""
    problems: dict[str, list[str]] = {}
    objects: Iterable[model.ClusterObject] = chain(
        snapshot.gateways, snapshot.ingresses, snapshot.routes, snapshot.controller_routes
    )
    for obj in filter(attrgetter("problems"), objects):
        problems.setdefault(obj.ref.namespace, []).extend(f"{obj.ref}: {problem}" for problem in obj.problems)
    for namespace, texts in problems.items():
        yield from some_notes(sorted(texts), f" on objects of namespace {namespace}")


def _by_id(objects: Sequence[_Object]) -> dict[int, _Object]:
    return dict(zip(map(id, objects), objects, strict=True))


def _order(claim: Claim) -> tuple[object, ...]:
    # The rest distinguishes claims of one Route, and objects of two API groups that have the same name.
    return (*claim.age, claim.number, claim.hints.controller or "", claim.names)


def _beyond(
    shares: Quota[int, _Claiming], items: Sequence[_Claiming], weights: Sequence[int]
) -> Mapping[int, frozenset[str]]:
    """Return the ids of what is beyond the share of its namespace, with the namespace."""
    if sum(weights) <= shares.share:
        return {}
    pairs = zip(items, weights, strict=True)
    return shares.left_out((item.ref.namespace, id(item), item, weight) for item, weight in pairs)
