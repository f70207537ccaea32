"""All claims of a cluster."""

from nodeagent.model.objects import Snapshot
from nodeagent.plan.claims.claim import Claim
from nodeagent.plan.claims.gateway_api import claims_of_routes
from nodeagent.plan.claims.ingresses import claim_of_controller_route, claims_of_ingresses, ingress_classes


def claims_of(snapshot: Snapshot) -> tuple[Claim, ...]:
    """Pure: one or more for each object that asks for names, in no particular order."""
    classes = ingress_classes(snapshot.ingress_classes)
    return (
        *claims_of_ingresses(snapshot.ingresses, classes),
        *claims_of_routes(snapshot),
        *(claim_of_controller_route(route, classes) for route in snapshot.controller_routes),
    )
