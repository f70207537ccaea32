"""Handwritten plans: names with their relay addresses, as the planner would decide them."""

from ipaddress import ip_address

from nodeagent.model.desired import Desired, HostsLine, NameDecision, Ruling, Verdict
from nodeagent.model.objects import ObjectRef

SERVICE = ObjectRef("Service", "ingress", "controller")
INGRESS = ObjectRef("Ingress", "default", "site")


def desired(*served: str, address: str = "169.254.66.17", refused: tuple[str, ...] = ()) -> Desired:
    """A plan that serves some names at one relay address and refuses others."""
    return Desired(
        hosts=tuple(HostsLine(ip_address(address), name) for name in served),
        names=(
            *(
                NameDecision(name, INGRESS, SERVICE, Ruling(Verdict.SERVED, "Verified", "proven"))
                for name in served
            ),
            *(
                NameDecision(name, INGRESS, SERVICE, Ruling(Verdict.REFUSED, "NotVerified", "not verified"))
                for name in refused
            ),
        ),
    )
