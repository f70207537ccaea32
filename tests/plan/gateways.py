"""Gateway API objects, made up piece by piece: each test says only what matters to it."""

from collections.abc import Iterable, Mapping

from nodeagent.model.objects import (
    GATEWAY_API,
    AllowedNamespaces,
    Gateway,
    GatewayListener,
    ListenerSet,
    LoadBalancerPoint,
    ObjectRef,
    ParentRef,
    Route,
)
from tests.plan.made_up import at, point

ALL = AllowedNamespaces("All")
SAME = AllowedNamespaces("Same")
NONE = AllowedNamespaces("None")
_NOTHING: Mapping[str, str] = {}


def listener(  # noqa: PLR0913 - each test names the one or two that matter to it
    hostname: str | None = None,
    *,
    name: str = "web",
    port: int = 443,
    protocol: str = "HTTPS",
    kinds: Iterable[str] = (),
    allowed: AllowedNamespaces = ALL,
) -> GatewayListener:
    """A listener that takes Routes from everywhere unless said otherwise."""
    return GatewayListener(
        name, port, protocol, hostname, tuple((GATEWAY_API, kind) for kind in kinds), allowed
    )


def gateway(  # noqa: PLR0913 - each test names the one or two that matter to it
    *listeners: GatewayListener,
    name: str = "public",
    namespace: str = "infra",
    points: Iterable[LoadBalancerPoint] = (point("192.0.2.1"),),
    created: int | None = 0,
    allowed: AllowedNamespaces = NONE,
    annotations: Mapping[str, str] = _NOTHING,
    problems: tuple[str, ...] = (),
) -> Gateway:
    """A Gateway; its status names the first load balancer unless said otherwise."""
    return Gateway(
        ObjectRef("Gateway", namespace, name),
        at(created) if created is not None else None,
        listeners or (listener(),),
        tuple(points),
        allowed,
        annotations,
        problems,
    )


def parent(  # noqa: PLR0913 - a reference has these parts
    name: str = "public",
    *,
    namespace: str = "infra",
    section: str | None = None,
    port: int | None = None,
    kind: str = "Gateway",
    group: str = GATEWAY_API,
) -> ParentRef:
    """A reference to a Gateway, or to something else."""
    return ParentRef(group, kind, namespace, name, section, port)


def listener_set(
    *listeners: GatewayListener,
    namespace: str = "team",
    to: ParentRef | None = None,
    annotations: Mapping[str, str] = _NOTHING,
) -> ListenerSet:
    """A ListenerSet named `more`."""
    ref = ObjectRef("ListenerSet", namespace, "more")
    return ListenerSet(ref, to or parent(), listeners or (listener(),), annotations)


def route(  # noqa: PLR0913 - each test names the one or two that matter to it
    *hostnames: str,
    name: str = "site",
    namespace: str = "web",
    kind: str = "HTTPRoute",
    to: Iterable[ParentRef] | None = None,
    declined: Iterable[ParentRef] = (),
    created: int | None = 0,
    annotations: Mapping[str, str] = _NOTHING,
) -> Route:
    """A Route that wants to be attached to the Gateway above unless said otherwise."""
    return Route(
        ObjectRef(kind, namespace, name),
        at(created) if created is not None else None,
        hostnames,
        tuple(to) if to is not None else (parent(),),
        tuple(declined),
        annotations,
    )
