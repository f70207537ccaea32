"""What Ingresses ask for."""

from collections.abc import Iterable, Iterator

from nodeagent.model.objects import Ingress
from nodeagent.plan.claims.claim import Claim, Whereabouts
from nodeagent.plan.claims.ingress_classes import IngressClasses
from nodeagent.plan.exclusion import exclusion


def claims_of_ingresses(ingresses: Iterable[Ingress], classes: IngressClasses) -> Iterator[Claim]:
    """Yields the hosts of the rules and the TLS section of each, served where its status or class says."""
    shared: dict[object, Whereabouts] = {}
    for ingress in ingresses:
        ingress_class = classes.of_ingress(ingress)
        told = (ingress.points, ingress.problems, ingress_class)
        whereabouts = shared.get(told)
        if whereabouts is None:
            whereabouts = shared[told] = Whereabouts(
                points=ingress.points,
                problems=ingress.problems,
                ingress_class=ingress_class,
                controller=classes.controller_of(ingress_class),
            )
        excluded = exclusion(ingress.annotations) if ingress.annotations else None
        yield Claim(ingress.ref, ingress.created, ingress.hosts, whereabouts, excluded, ingress.ref.namespace)
