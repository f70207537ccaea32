"""What an object that asks for names says, whatever its kind."""

from dataclasses import dataclass
from datetime import datetime

from nodeagent.model.objects import LoadBalancerPoint, ObjectRef


@dataclass(frozen=True, slots=True, eq=False)
class LoadBalancerHints:
    """What objects tell of the load balancer that serves them.

    One value is shared by all that tell the same, and known by identity: of ten thousand Ingresses most
    tell the same, and to hash the addresses of each costs more than all else.

    `points` and `problems` are those of its status, which `status` names for reasons. `ingress_class` and
    `controller` (IngressClass.spec.controller) are None where they are unknown. `gateway` is the Gateway that
    the object is attached to: a Service may bear its name. `unattached` says why nothing serves it, if so.
    """

    points: tuple[LoadBalancerPoint, ...] = ()
    problems: tuple[str, ...] = ()
    status: str = "its status.loadBalancer"
    ingress_class: str | None = None
    controller: str | None = None
    gateway: ObjectRef | None = None
    unattached: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """One object asks for names, as written.

    `excluded` is why it is to be left alone, if it is, and `excluded_in` the namespace of whoever said so.
    """

    ref: ObjectRef
    created: datetime | None
    names: tuple[str, ...]
    hints: LoadBalancerHints
    excluded: str | None = None
    excluded_in: str = ""
