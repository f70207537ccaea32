"""All claims of a cluster, kept from one pass to the next: an object that stays keeps its claims.

For Ingresses and objects of controllers' own APIs (Traefik's, Istio's), the class shows the load balancer.
Source: the Kubernetes documentation, "Ingress class" and "Default IngressClass". The annotation is the way
before Kubernetes 1.18, and every controller still understands it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from nodeagent.config.options import LimitOptions
from nodeagent.model.objects import CLASS_ANNOTATION, ControllerRoute, Ingress, IngressClass, Route, Snapshot
from nodeagent.plan.claims.claim import Claim, HintsPool, LoadBalancerHints
from nodeagent.plan.claims.route_claims import Parents, claims_of_route
from nodeagent.plan.claims.shares import ClaimShares
from nodeagent.plan.hostnames import canonical
from nodeagent.plan.incremental import difference
from nodeagent.plan.opt_out import opt_out
from nodeagent.plan.precedence import by_age


class IngressClasses(Struct, frozen=True):
    """The cluster's IngressClasses, as decisions look them up."""

    controllers: dict[str, str]
    """Class to controller."""
    default: str | None
    """The only class that is marked as default; with several of them none is."""

    def of_ingress(self, ingress: Ingress) -> str | None:
        """Return the Ingress's class: by its spec, else by its annotation, else the default."""
        return ingress.class_name or ingress.annotations.get(CLASS_ANNOTATION) or self.default

    def controller_of(self, ingress_class: str | None) -> str | None:
        """Return the controller that serves a class, if an IngressClass names it."""
        return self.controllers.get(ingress_class) if ingress_class else None

    def only_of(self, controller: str) -> str | None:
        """Return the class of a controller that has exactly one."""
        found = [name for name, serving in self.controllers.items() if serving == controller]
        return found[0] if len(found) == 1 else None


def ingress_classes(found: Iterable[IngressClass]) -> IngressClasses:
    """Make the value from the objects."""
    objects = tuple(found)
    defaults = [each.name for each in objects if each.default]
    return IngressClasses(
        {each.name: each.controller for each in objects if each.controller},
        defaults[0] if len(defaults) == 1 else None,
    )


def claims_of_ingress(ingress: Ingress, classes: IngressClasses, pool: HintsPool) -> tuple[Claim, ...]:
    """Return the claim to the hosts of its rules and TLS section, served where its status or class says."""
    ingress_class = classes.of_ingress(ingress)
    hints = pool.hints(
        points=ingress.points,
        problems=ingress.problems,
        ingress_class=ingress_class,
        controller=classes.controller_of(ingress_class),
    )
    return (_claim(ingress, ingress.hosts, hints),)


def claims_of_controller_route(
    route: ControllerRoute, classes: IngressClasses, pool: HintsPool
) -> tuple[Claim, ...]:
    """Return the claim to its hosts; it has no status, so its class determines where it is served.

    The class is its own, or its controller's.
    """
    hints = pool.hints(
        status="its status",
        ingress_class=route.annotations.get(CLASS_ANNOTATION) or classes.only_of(route.controller),
        controller=route.controller,
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


_Owner = TypeVar("_Owner", Ingress, Route, ControllerRoute)
_OwnerKey = tuple[str, str, str]


class ClaimCollector:
    """Remembers the claims of the Snapshot that it saw last.

    Args:
        limits: the options.
    """

    def __init__(self, limits: LimitOptions) -> None:
        self._shares = ClaimShares(limits)
        self._pool = HintsPool()
        self._ingresses: _Collection[Ingress] = _Collection()
        self._routes: _Collection[Route] = _Collection()
        self._controller_routes: _Collection[ControllerRoute] = _Collection()
        self._parents = Parents({}, {}, {})
        self._parents_made_of: tuple[object, ...] = ((), (), ())

    def update(self, snapshot: Snapshot) -> tuple[list[Claim], list[Claim]]:
        """Return the claims that are gone since the last Snapshot, and those that are new.

        Claims of a namespace that far exceed its share are not among them.
        """
        classes = ingress_classes(snapshot.ingress_classes)
        parents = self._parents_of(snapshot)
        pool = self._pool
        changes = (
            self._ingresses.update(
                snapshot.ingresses, classes, lambda ingress: claims_of_ingress(ingress, classes, pool)
            ),
            self._routes.update(
                snapshot.routes, parents, lambda route: claims_of_route(route, parents, pool)
            ),
            self._controller_routes.update(
                snapshot.controller_routes,
                classes,
                lambda route: claims_of_controller_route(route, classes, pool),
            ),
        )
        gone = [claim for removed, _ in changes for claim in removed]
        return self._shares.update(gone, [claim for _, added in changes for claim in added])

    def problems(self) -> list[str]:
        """Return what is wrong with objects of the last Snapshot that claim hostnames."""
        collections = (self._ingresses, self._routes, self._controller_routes)
        found = [problem for each in collections for problem in each.problems.elements()]
        return found + self._shares.problems()

    def _parents_of(self, snapshot: Snapshot) -> Parents:
        made_of = (snapshot.gateways, snapshot.listener_sets, snapshot.namespaces)
        if snapshot.routes and made_of != self._parents_made_of:
            self._parents, self._parents_made_of = Parents.of(*made_of), made_of
        return self._parents


class _Collection(Generic[_Owner]):
    """The objects of one kind, each with its claims.

    Attributes:
        problems: what is wrong with them, and how often.
    """

    def __init__(self) -> None:
        self.problems: Counter[str] = Counter()
        self._owners: Sequence[_Owner] = ()
        self._context: object = None
        self._claims: dict[_Owner, tuple[Claim, ...]] = {}
        # How many more times the same object is listed.
        self._more: Counter[_Owner] = Counter()

    def update(
        self, owners: Sequence[_Owner], context: object, claims_of: Callable[[_Owner], tuple[Claim, ...]]
    ) -> tuple[list[Claim], list[Claim]]:
        """Take over the objects as they are now; `context` is all else on which their claims depend."""
        if context is self._context or context == self._context:
            removed, added = difference(self._owners, owners, _key)
        else:
            removed, added = list(self._owners), list(owners)
        self._owners, self._context = owners, context
        gone, new = _problems(removed), _problems(added)
        if gone or new:
            self.problems = self.problems - gone + new
        known: dict[_OwnerKey, list[tuple[Claim, ...]]] = {}
        for owner in removed:
            if self._more[owner]:
                self._more[owner] -= 1
            else:
                known.setdefault(_key(owner), []).append(self._claims.pop(owner))
        claimed: list[Claim] = []
        for owner in added:
            if owner in self._claims:
                self._more[owner] += 1
                continue
            claims = claims_of(owner)
            before = known.get(_key(owner), []) if known else []
            if claims in before:
                # The same objects as before: what depends on them stays as well.
                claims = before.pop(before.index(claims))
            else:
                claimed += claims
            self._claims[owner] = claims
        self._more = +self._more
        return [claim for lists in known.values() for claims in lists for claim in claims], claimed


def _problems(owners: Iterable[Ingress | Route | ControllerRoute]) -> Counter[str]:
    return Counter(f"{owner.ref}: {problem}" for owner in owners for problem in owner.problems)


def _key(owner: Ingress | Route | ControllerRoute) -> _OwnerKey:
    return (owner.ref.kind, owner.ref.namespace, owner.ref.name)
