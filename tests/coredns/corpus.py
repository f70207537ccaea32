"""Corefiles as distributions ship them, some that use what the grammar allows; and plans of names."""

from ipaddress import ip_address
from pathlib import Path

from nodeagent.model.decisions import Conclusion, DecisionStatus, NameDecision
from nodeagent.model.desired import Desired, HostsLine
from nodeagent.model.objects import ObjectRef

FILES = sorted((Path(__file__).parent / "corefiles").iterdir())
NAMES = [file.name for file in FILES]


def corefile(name: str) -> str:
    """The text of one, line ends as they are."""
    return (Path(__file__).parent / "corefiles" / name).read_bytes().decode()


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
