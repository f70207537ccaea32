"""Handwritten plans: names with their relay addresses, as the planner would decide them."""

from ipaddress import ip_address

from nodeagent.model.desired import Conclusion, DecisionStatus, Desired, HostsLine, NameDecision
from nodeagent.model.objects import ObjectRef

SERVICE = ObjectRef("Service", "ingress", "controller")
INGRESS = ObjectRef("Ingress", "default", "site")


RELAY = "169.254.66.17"


def desired(
    *served: str, namespace: str = "default", address: str = RELAY, refused: tuple[str, ...] = ()
) -> Desired:
    """A plan that serves some names of a namespace at one relay address and refuses others."""
    by = ObjectRef("Ingress", namespace, "site")
    conclusions = dict.fromkeys(served, Conclusion(DecisionStatus.SERVED, "Verified", "proven"))
    conclusions |= dict.fromkeys(refused, Conclusion(DecisionStatus.REFUSED, "NotVerified", "not verified"))
    return Desired(
        hosts=tuple(HostsLine(ip_address(address), name) for name in served),
        names=tuple(NameDecision(name, by, SERVICE, conclusion) for name, conclusion in conclusions.items()),
    )
