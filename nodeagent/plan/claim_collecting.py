"""All claims of a cluster, kept from one pass to the next: an object that stays keeps its claims.

For Ingresses and objects of controllers' own APIs (Traefik's, Istio's), the class shows the load balancer.
Source: the Kubernetes documentation, "Ingress class" and "Default IngressClass". The annotation is the way
before Kubernetes 1.18, and every controller still understands it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Generic, TypeVar

from msgspec import Struct

from nodeagent.config.options import LimitOptions
from nodeagent.model.objects import (
    CLASS_ANNOTATION,
    ControllerRoute,
    Ingress,
    IngressClass,
    ObjectRef,
    Route,
    Snapshot,
)
from nodeagent.plan.claim import Claim, HintsPool, LoadBalancerHints
from nodeagent.plan.hostnames import canonical
from nodeagent.plan.incremental import ItemResults
from nodeagent.plan.precedence import by_age, opt_out
from nodeagent.plan.route_claims import Parents, claims_of_route
from nodeagent.plan.shares import Shares


class IngressClasses(Struct, frozen=True):
    """The cluster's IngressClasses, as decisions look them up."""

    controllers: dict[str, str]
    """Class to controller."""
    default: str | None
    """The only class that is marked as default; with several of them none is."""


def ingress_classes(found: Iterable[IngressClass]) -> IngressClasses:
    """Make the value from the objects."""
    objects = tuple(found)
    defaults = [each.name for each in objects if each.default]
    return IngressClasses(
        {each.name: each.controller for each in objects if each.controller},
        defaults[0] if len(defaults) == 1 else None,
    )


def claims_of_ingress(ingress: Ingress, classes: IngressClasses, pool: HintsPool) -> tuple[Claim, ...]:
    """Return the claim to the hosts of its rules and TLS section, served where its status or class says.

    The class is that of its spec, else of its annotation, else the default.
    """
    ingress_class = ingress.class_name or ingress.annotations.get(CLASS_ANNOTATION) or classes.default
    hints = pool.one(
        LoadBalancerHints(
            points=ingress.points,
            problems=ingress.problems,
            ingress_class=ingress_class,
            controller=classes.controllers.get(ingress_class or ""),
        )
    )
    return (_claim(ingress, ingress.hosts, hints),)


def claims_of_controller_route(
    route: ControllerRoute, classes: IngressClasses, pool: HintsPool
) -> tuple[Claim, ...]:
    """Return the claim to its hosts; it has no status, so its class determines where it is served.

    The class is its own, or its controller's, if that has exactly one.
    """
    own = [name for name, serving in classes.controllers.items() if serving == route.controller]
    hints = pool.one(
        LoadBalancerHints(
            status="its status",
            ingress_class=route.annotations.get(CLASS_ANNOTATION) or (own[0] if len(own) == 1 else None),
            controller=route.controller,
        )
    )
    return (_claim(route, route.hosts, hints),)


def _claim(by: Ingress | ControllerRoute, hosts: tuple[str, ...], hints: LoadBalancerHints) -> Claim:
    names = tuple(dict.fromkeys(map(canonical, hosts)))
    return Claim(
        by.ref,
        by_age(by),
        hosts if names == hosts else names,
        hints,
        opt_out(by.annotations) if by.annotations else None,
        by.ref.namespace,
    )


def _order(_: int, claim: Claim) -> tuple[object, ...]:
    # The rest distinguishes claims of one Route, and objects of two API groups that have the same name.
    return (*claim.age, claim.number, claim.hints.controller or "", claim.names)


_Owner = TypeVar("_Owner", Ingress, Route, ControllerRoute)

_Claimed = tuple[tuple[Claim, ...], tuple[str, ...]]
"""What one object claims, and what is wrong with it."""


_TIMES = 4
"""Several objects may claim a hostname: for example, one for each of its paths."""
_FEWEST = 10_000
_MOST_COMPARISONS = 500_000
"""A Route with one hostname and a Gateway of 64 listeners takes 64."""


class ClaimCollector:
    """Remembers the claims of the Snapshot that it saw last.

    The youngest Routes and claims of a namespace are left out if its older ones take far more than it can
    get; no other namespace's matter.

    A claimed hostname takes about 30 bytes of an object's text, and over a kilobyte of the agent's memory:
    one tenant with a few dozen objects could have every agent killed, on all nodes at once. A Route may have
    32 parents of 64 listeners and 16 hostnames: to find what it claims takes milliseconds.

    Args:
        limits: the options.
    """

    def __init__(self, limits: LimitOptions) -> None:
        self._most = max(_FEWEST, _TIMES * limits.hostnames_per_namespace)
        # By id, which no other claim has while the claim is held here.
        self._shares: Shares[int, Claim] = Shares(self._most, _order, lambda claim: len(claim.names))
        self._left_out: dict[int, Claim] = {}
        self._weighed: ItemResults[Route, tuple[Route, int]] = ItemResults(lambda route: route.ref)
        self._route_shares: Shares[ObjectRef, tuple[Route, int]] = Shares(
            _MOST_COMPARISONS, lambda _, weighed: by_age(weighed[0]), lambda weighed: weighed[1]
        )
        self._pool = HintsPool()
        self._ingresses: _Collection[Ingress] = _Collection()
        self._routes: _Collection[Route] = _Collection()
        self._controller_routes: _Collection[ControllerRoute] = _Collection()
        self._classes = IngressClasses({}, None)
        self._parents = Parents({}, {}, {})
        self._parents_made_of: tuple[object, ...] = ((), (), ())

    def update(self, snapshot: Snapshot) -> tuple[list[Claim], list[Claim]]:
        """Return the claims that are gone since the last Snapshot, and the new ones, within the shares."""
        classes, pool = ingress_classes(snapshot.ingress_classes), self._pool
        same_classes = classes == self._classes
        made_of = (snapshot.gateways, snapshot.listener_sets, snapshot.namespaces)
        parents = self._parents
        if snapshot.routes and made_of != self._parents_made_of:
            parents, self._parents_made_of = Parents.of(*made_of), made_of
        again = [] if parents is self._parents else parents.touched(self._parents, snapshot.routes)
        again += self._moved_routes(snapshot.routes, parents, again)
        self._classes, self._parents = classes, parents
        changes = (
            self._ingresses.update(
                snapshot.ingresses,
                lambda ingress: claims_of_ingress(ingress, classes, pool),
                () if same_classes else snapshot.ingresses,
            ),
            self._routes.update(
                snapshot.routes,
                lambda route: () if self._leaves_out(route) else claims_of_route(route, parents, pool),
                again,
            ),
            self._controller_routes.update(
                snapshot.controller_routes,
                lambda route: claims_of_controller_route(route, classes, pool),
                () if same_classes else snapshot.controller_routes,
            ),
        )
        gone = [claim for removed, _ in changes for claim in removed]
        return self._within_shares(gone, [claim for _, added in changes for claim in added])

    def problems(self) -> list[str]:
        """Return what is wrong with objects of the last Snapshot that claim hostnames."""
        collections = (self._ingresses, self._routes, self._controller_routes)
        found = [problem for each in collections for problem in each.problems.elements()]
        found += [
            f"namespace {namespace}: {count} of its Routes are not considered: older ones take "
            f"{_MOST_COMPARISONS} comparisons of hostnames with listeners, or more"
            for namespace, count in self._route_shares.counts_left_out().items()
        ]
        return found + [
            f"namespace {namespace}: {count} of its claims to hostnames are not considered: older ones "
            f"name {self._most} or more (limits.hostnamesPerNamespace)"
            for namespace, count in self._shares.counts_left_out().items()
        ]

    def _moved_routes(self, routes: Sequence[Route], parents: Parents, again: list[Route]) -> list[Route]:
        """Weigh the Routes; return those that are left out now and were not, or the reverse."""
        gone, new = self._weighed.update(routes, lambda route: (route, parents.comparisons(route)), again)
        for route, _ in gone:
            self._route_shares.remove(route.ref.namespace, route.ref)
        for weighed in new:
            self._route_shares.put(weighed[0].ref.namespace, weighed[0].ref, weighed)
        moved = {key for _, key in self._route_shares.settle()}
        return [route for route in routes if route.ref in moved] if moved else []

    def _leaves_out(self, route: Route) -> bool:
        return route.ref in self._route_shares.left_out(route.ref.namespace)

    def _within_shares(self, gone: list[Claim], new: list[Claim]) -> tuple[list[Claim], list[Claim]]:
        """Return the claims to forget, and those to consider now that were not considered before.

        A claim is left out as a whole.
        """
        for claim in gone:
            self._shares.remove(claim.ref.namespace, id(claim))
        for claim in new:
            self._shares.put(claim.ref.namespace, id(claim), claim)
        if not self._shares.settle():
            return gone, new
        before, self._left_out = self._left_out, self._shares.all_left_out()
        ended, begun = set(map(id, gone)), set(map(id, new))
        forgotten = [claim for claim in gone if id(claim) not in before]
        considered = [claim for claim in new if id(claim) not in self._left_out]
        forgotten += [self._left_out[key] for key in self._left_out.keys() - before.keys() - begun]
        considered += [before[key] for key in before.keys() - self._left_out.keys() - ended]
        return forgotten, considered


class _Collection(Generic[_Owner]):
    """The objects of one kind, each with its claims; `problems` are theirs, with the number of each."""

    def __init__(self) -> None:
        self.problems: Counter[str] = Counter()
        self._claimed: ItemResults[_Owner, _Claimed] = ItemResults(
            lambda owner: (owner.ref.kind, owner.ref.namespace, owner.ref.name)
        )

    def update(
        self,
        owners: Sequence[_Owner],
        claims_of: Callable[[_Owner], tuple[Claim, ...]],
        again: Iterable[_Owner],
    ) -> tuple[list[Claim], list[Claim]]:
        """Take over the objects as they are now; of those in `again`, the claims may have changed."""

        def claimed_by(owner: _Owner) -> _Claimed:
            return claims_of(owner), tuple(f"{owner.ref}: {problem}" for problem in owner.problems)

        gone, new = self._claimed.update(owners, claimed_by, again)
        fewer, more = (Counter(chain.from_iterable(found for _, found in each)) for each in (gone, new))
        if fewer or more:
            self.problems = self.problems - fewer + more
        return [claim for claims, _ in gone for claim in claims], [
            claim for claims, _ in new for claim in claims
        ]
