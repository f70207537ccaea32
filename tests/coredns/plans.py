"""Handwritten plans: names with their relay addresses, as the planner would decide them."""

from ipaddress import ip_address

from nodeagent.model.desired import Desired, HostsLine, NameDecision, Ruling, Verdict
from nodeagent.model.objects import ObjectRef

SERVICE = ObjectRef("Service", "ingress", "controller")
INGRESS = ObjectRef("Ingress", "default", "site")


RELAY = "169.254.66.17"


def desired(
    *served: str, namespace: str = "default", address: str = RELAY, refused: tuple[str, ...] = ()
) -> Desired:
    """A plan that serves some names of a namespace at one relay address and refuses others."""
    by = ObjectRef("Ingress", namespace, "site")
    rulings = dict.fromkeys(served, Ruling(Verdict.SERVED, "Verified", "proven"))
    rulings |= dict.fromkeys(refused, Ruling(Verdict.REFUSED, "NotVerified", "not verified"))
    return Desired(
        hosts=tuple(HostsLine(ip_address(address), name) for name in served),
        names=tuple(NameDecision(name, by, SERVICE, ruling) for name, ruling in rulings.items()),
    )
