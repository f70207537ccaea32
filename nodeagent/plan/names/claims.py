"""All claims of a cluster to hostnames, and the load balancer of each: an object that stays keeps its claims.

For Ingresses and objects of controllers' own APIs (Traefik's, Istio's), the class shows the load balancer.
Source: the Kubernetes documentation, "Ingress class" and "Default IngressClass". The annotation is the way
before Kubernetes 1.18, and every controller still understands it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct

from nodeagent.config.options import ClassService, LimitOptions
from nodeagent.model import objects as model
from nodeagent.model.addresses import canonical
from nodeagent.model.desired import some_notes
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlan
from nodeagent.plan.memory import Changed, Memory, Quota, changed_keys
from nodeagent.plan.names.load_balancer_lookup import (
    Claim,
    LoadBalancerHints,
    LoadBalancerLookup,
    LoadBalancerMatch,
    one_of,
)
from nodeagent.plan.names.route_claims import Considered, Parents, claims_of_route

_Claimant = model.Ingress | model.Route | model.ControllerRoute | model.Service


def claims_of(found: _Claimant, classes: Iterable[model.IngressClass], parents: Parents) -> tuple[Claim, ...]:
    """Return what an object claims: a Route for each Gateway, any other all of its hosts at once. Pure.

    An Ingress is served where its status says, else its class: that of its spec, else of its annotation, else
    the only one that is marked as default. So is an object of a controller's own API; its class is its own,
    or its controller's, if that has exactly one. external-dns leads hostnames to the Service that has them.
    """
    named = found.annotations.get(model.CLASS_ANNOTATION) if found.annotations else None
    match found:
        case model.Route():
            return claims_of_route(found, parents)
        case model.Ingress(hosts=hosts):
            defaults = [each.name for each in classes if each.default]
            named = found.class_name or named or (defaults[0] if len(defaults) == 1 else None)
            hints = LoadBalancerHints(
                points=found.points,
                problems=found.problems,
                ingress_class=named,
                controller=next((each.controller for each in classes if each.name == named), None) or None,
            )
        case model.ControllerRoute(hosts=hosts):
            own = [each.name for each in classes if each.controller and each.controller == found.controller]
            hints = LoadBalancerHints(
                points=found.points,
                status="its status",
                ingress_class=found.class_name or named or (own[0] if len(own) == 1 else None),
                controller=found.controller,
            )
        case model.Service():
            listed = (found.annotations.get(key, "").split(",") for key in model.EXTERNAL_DNS)
            hosts = tuple(filter(None, map(str.strip, chain.from_iterable(listed))))
            hints = LoadBalancerHints(service=found.ref.path)
    names = tuple(dict.fromkeys(map(canonical, hosts)))
    excluded = model.opt_out(found.annotations) if found.annotations else None
    claimed = hosts if names == hosts else names
    return (Claim(found.ref, model.by_age(found), claimed, one_of(hints), excluded, found.ref.namespace),)


_Object = TypeVar("_Object")
_Claiming = TypeVar("_Claiming", model.Route, Claim)

_TIMES = 4
"""Several objects may claim a hostname: for example, one for each of its paths."""
_FEWEST = 1000
_MOST_COMPARISONS = 500_000
"""A Route with one hostname and a Gateway of 64 listeners takes 64."""


class MatchedClaim(Struct, frozen=True):
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

    `configured` is the option `loadBalancers.ingressClasses`.
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
            each for each in snapshot.services if any(key in each.annotations for key in model.EXTERNAL_DNS)
        ]
        claimed = self._claimed.results(
            lambda _, each, __: claims_of(each, classes, parents),
            _by_id((*snapshot.ingresses, *routes, *snapshot.controller_routes, *services)),
            considered,
            context=classes,
        )
        claims = [*chain.from_iterable(claimed.values())]
        left_out = _beyond(self._claim_shares, claims, [*map(len, map(attrgetter("names"), claims))])
        if left_out:
            claimed = {
                key: tuple(claim for claim in found if id(claim) not in left_out)
                for key, found in claimed.items()
            }
        notes += [
            f"namespace {namespace}: {count} of its claims to hostnames are not considered: older ones "
            f"name {self._claim_shares.share} or more (limits.hostnamesPerNamespace)"
            for namespace, count in Counter(chain(*left_out.values())).items()
        ]
        return claimed, notes

    def _indexed(self, matched: Mapping[int, tuple[MatchedClaim, ...]]) -> ClaimsByName:
        """Return the claims by hostname; only what changed is sorted in."""
        before, self._by_object = self._by_object, matched
        gone: set[int] = set()
        added: dict[str, list[MatchedClaim]] = {}
        # The first ones in the order of the objects, as they lie in memory.
        for key in changed_keys(before, matched) if before else matched:
            for each in before.get(key, ()):
                gone.add(id(each))
                for name in each.claim.names:
                    added.setdefault(name, [])
            for each in matched.get(key, ()):
                for name in each.claim.names:
                    added.setdefault(name, []).append(each)
        known = self._by_name
        now = {
            name: (*(each for each in known.get(name, ()) if id(each) not in gone), *claims)
            for name, claims in added.items()
        }
        claimed = {name: claims for name, claims in now.items() if claims}
        return Changed(known, claimed, (now.keys() & known.keys()) - claimed.keys())


def _problems(snapshot: model.Snapshot) -> Iterator[str]:
    """Yield what is wrong with objects that claim hostnames, and with Gateways; of a namespace some of it."""
    notes: dict[str, list[str]] = {}
    objects: Iterable[model.ClusterObject] = chain(
        snapshot.gateways, snapshot.ingresses, snapshot.routes, snapshot.controller_routes
    )
    for one in filter(attrgetter("problems"), objects):
        notes.setdefault(one.ref.namespace, []).extend(f"{one.ref}: {problem}" for problem in one.problems)
    for namespace, its in notes.items():
        yield from some_notes(sorted(its), f" on objects of namespace {namespace}")


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
    return shares.left_out((each.ref.namespace, id(each), each, weight) for each, weight in pairs)
