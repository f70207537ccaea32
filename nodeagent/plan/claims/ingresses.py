"""What Ingresses ask for, and objects of controllers' own APIs (Traefik's, Istio's): their class tells where.

The Kubernetes documentation, "Ingress class" and "Default IngressClass"; the annotation is the way of before
Kubernetes 1.18 and still understood by every controller.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nodeagent.model.annotations import CLASS_ANNOTATION
from nodeagent.model.objects import ControllerRoute, Ingress, IngressClass
from nodeagent.plan.claims.claim import Claim, LoadBalancerHints
from nodeagent.plan.opt_out import opt_out


@dataclass(frozen=True, slots=True)
class IngressClasses:
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


def claims_of_ingresses(ingresses: Iterable[Ingress], classes: IngressClasses) -> Iterator[Claim]:
    """Yields the hosts of the rules and the TLS section of each, served where its status or class says."""
    shared: dict[object, LoadBalancerHints] = {}
    for ingress in ingresses:
        ingress_class = classes.of_ingress(ingress)
        told = (ingress.points, ingress.problems, ingress_class)
        hints = shared.get(told)
        if hints is None:
            hints = shared[told] = LoadBalancerHints(
                points=ingress.points,
                problems=ingress.problems,
                ingress_class=ingress_class,
                controller=classes.controller_of(ingress_class),
            )
        excluded = opt_out(ingress.annotations) if ingress.annotations else None
        yield Claim(ingress.ref, ingress.created, ingress.hosts, hints, excluded, ingress.ref.namespace)


def claim_of_controller_route(route: ControllerRoute, classes: IngressClasses) -> Claim:
    """Its hosts; it has no status, so its class tells where it is served: its own, or its controller's."""
    return Claim(
        route.ref,
        route.created,
        route.hosts,
        LoadBalancerHints(
            status="its status",
            ingress_class=route.annotations.get(CLASS_ANNOTATION) or classes.only_of(route.controller),
            controller=route.controller,
        ),
        opt_out(route.annotations) if route.annotations else None,
        route.ref.namespace,
    )
