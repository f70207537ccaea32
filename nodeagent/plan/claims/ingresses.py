"""What Ingresses ask for."""

from nodeagent.model.objects import Ingress
from nodeagent.plan.claims.claim import Claim, Whereabouts
from nodeagent.plan.claims.ingress_classes import IngressClasses
from nodeagent.plan.exclusion import exclusion


def claim_of_ingress(ingress: Ingress, classes: IngressClasses) -> Claim:
    """The hosts of its rules and its TLS section; served where its status or its class says."""
    ingress_class = classes.of_ingress(ingress)
    return Claim(
        ingress.ref,
        ingress.created,
        ingress.hosts,
        Whereabouts(
            points=ingress.points,
            problems=ingress.problems,
            ingress_class=ingress_class,
            controller=classes.controller_of(ingress_class),
        ),
        exclusion(ingress.annotations) if ingress.annotations else None,
    )
