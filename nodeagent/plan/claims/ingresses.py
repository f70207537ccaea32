"""What Ingresses ask for, and objects of controllers' own APIs (Traefik's, Istio's): their class tells where.

The Kubernetes documentation, "Ingress class" and "Default IngressClass"; the annotation is the way of before
Kubernetes 1.18 and still understood by every controller.
"""

from collections.abc import Iterable

from msgspec import Struct

from nodeagent.model.objects import CLASS_ANNOTATION, ControllerRoute, Ingress, IngressClass
from nodeagent.plan.claims.claim import Claim, HintsPool, LoadBalancerHints
from nodeagent.plan.hostnames import canonical
from nodeagent.plan.opt_out import opt_out
from nodeagent.plan.precedence import by_age


class IngressClasses(Struct, frozen=True):
    """The cluster's IngressClasses, as decisions ask for them."""

    controllers: dict[str, str]
    """Class to controller."""
    default: str | None
    """The only class that is marked as default; with several of them none is."""

    def of_ingress(self, ingress: Ingress) -> str | None:
        """The Ingress's class: by its spec, else by its annotation, else the default."""
        return ingress.class_name or ingress.annotations.get(CLASS_ANNOTATION) or self.default

    def controller_of(self, ingress_class: str | None) -> str | None:
        """The controller that serves a class, where an IngressClass tells it."""
        return self.controllers.get(ingress_class) if ingress_class else None

    def only_of(self, controller: str) -> str | None:
        """The class of a controller that has exactly one."""
        found = [name for name, serving in self.controllers.items() if serving == controller]
        return found[0] if len(found) == 1 else None


def ingress_classes(found: Iterable[IngressClass]) -> IngressClasses:
    """Makes the value out of the objects."""
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
    """Return the claim to its hosts; it has no status, so its class tells where it is served.

    The class is its own, or its controller's.
    """
    hints = pool.hints(
        status="its status",
        ingress_class=route.annotations.get(CLASS_ANNOTATION) or classes.only_of(route.controller),
        controller=route.controller,
    )
    return (_claim(route, route.hosts, hints),)


def _claim(by: Ingress | ControllerRoute, hosts: Iterable[str], hints: LoadBalancerHints) -> Claim:
    return Claim(
        by.ref,
        by_age(by),
        tuple(dict.fromkeys(map(canonical, hosts))),
        hints,
        opt_out(by.annotations) if by.annotations else None,
        by.ref.namespace,
    )
