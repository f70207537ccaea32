"""All claims of a cluster."""

from nodeagent.model.objects import Snapshot
from nodeagent.plan.claims.claim import Claim
from nodeagent.plan.claims.controller_routes import claim_of_controller_route
from nodeagent.plan.claims.ingress_classes import ingress_classes
from nodeagent.plan.claims.ingresses import claims_of_ingresses
from nodeagent.plan.claims.routes import claims_of_routes


def claims_of(snapshot: Snapshot) -> tuple[Claim, ...]:
    """Pure: one or more for each object that asks for names, in no particular order."""
    classes = ingress_classes(snapshot.ingress_classes)
    return (
        *claims_of_ingresses(snapshot.ingresses, classes),
        *claims_of_routes(snapshot),
        *(claim_of_controller_route(route, classes) for route in snapshot.controller_routes),
    )
