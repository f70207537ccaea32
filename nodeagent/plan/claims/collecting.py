"""All claims of a cluster."""

from nodeagent.model.objects import Snapshot
from nodeagent.plan.claims.claim import Claim
from nodeagent.plan.claims.ingress_classes import ingress_classes
from nodeagent.plan.claims.ingresses import claim_of_ingress


def claims_of(snapshot: Snapshot) -> tuple[Claim, ...]:
    """Pure: one or more for each object that asks for names, in no particular order."""
    classes = ingress_classes(snapshot.ingress_classes)
    return tuple(claim_of_ingress(ingress, classes) for ingress in snapshot.ingresses)
