"""What an object that claims hostnames says, whatever its kind."""

from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import astuple

from nodeagent.model.objects import LoadBalancerPoint, ObjectRef
from nodeagent.plan.precedence import Age


class LoadBalancerHints(Struct, frozen=True, eq=False, weakref=True):
    """What objects say about the load balancer that serves them.

    All objects that say the same share one value (`one_of`), which is compared by identity: of ten
    thousand Ingresses, most say the same, and hashing the addresses of each costs more than all else.

    `points` and `problems` are those of its status, which `status` names for reasons. `ingress_class` and
    `controller` (IngressClass.spec.controller) are None where they are unknown. `gateway` is the Gateway that
    the object is attached to: a Service may have its name. `unattached` says why nothing serves it, if so.
    """

    points: tuple[LoadBalancerPoint, ...] = ()
    problems: tuple[str, ...] = ()
    status: str = "its status.loadBalancer"
    ingress_class: str | None = None
    controller: str | None = None
    gateway: ObjectRef | None = None
    unattached: str = ""


_HINTS: WeakValueDictionary[tuple[object, ...], LoadBalancerHints] = WeakValueDictionary()


def one_of(hints: LoadBalancerHints) -> LoadBalancerHints:
    """Return the one value that says this, as long as a claim has it."""
    return _HINTS.setdefault(astuple(hints), hints)


class Claim(Struct, frozen=True):
    """One object claims hostnames: canonical, each once.

    `excluded` is why it is excluded, if it is, and `excluded_in` the namespace that excluded it.
    `number` is its place among the claims of one object.
    """

    ref: ObjectRef
    age: Age
    names: tuple[str, ...]
    hints: LoadBalancerHints
    excluded: str | None = None
    excluded_in: str = ""
    number: int = 0
