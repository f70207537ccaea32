"""What objects of controllers' own APIs ask for (Traefik's IngressRoutes, Istio's Gateways)."""

from nodeagent.model.annotations import CLASS_ANNOTATION
from nodeagent.model.routes import ControllerRoute
from nodeagent.plan.claims.claim import Claim, Whereabouts
from nodeagent.plan.claims.ingress_classes import IngressClasses
from nodeagent.plan.exclusion import exclusion


def claim_of_controller_route(route: ControllerRoute, classes: IngressClasses) -> Claim:
    """Its hosts; it has no status, so its class tells where it is served: its own, or its controller's."""
    return Claim(
        route.ref,
        route.created,
        route.hosts,
        Whereabouts(
            status="its status",
            ingress_class=route.annotations.get(CLASS_ANNOTATION) or classes.only_of(route.controller),
            controller=route.controller,
        ),
        exclusion(route.annotations) if route.annotations else None,
        route.ref.namespace,
    )
