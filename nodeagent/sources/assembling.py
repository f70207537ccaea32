"""Pure: decoded values of all kinds into one Snapshot."""

from collections.abc import Iterable
from typing import TypeVar

from nodeagent.model.objects import (
    ConfigMap,
    ControllerRoute,
    Gateway,
    Ingress,
    IngressClass,
    ListenerSet,
    Namespace,
    Node,
    RelayService,
    Route,
    Service,
    ServiceRange,
    Snapshot,
    Unreadable,
)

_Value = TypeVar("_Value")


def assembled(
    values: Iterable[object], unreadable: Iterable[Unreadable] = (), not_covered: Iterable[str] = ()
) -> Snapshot:
    """The Snapshot; EndpointSlices of an existing relay come as tuples of endpoints."""
    by_type: dict[type, list[object]] = {}
    for value in values:
        by_type.setdefault(type(value), []).append(value)

    def of(kind: type[_Value]) -> tuple[_Value, ...]:
        return tuple(value for value in by_type.get(kind, ()) if isinstance(value, kind))

    return Snapshot(
        services=of(Service),
        ingresses=of(Ingress),
        ingress_classes=of(IngressClass),
        gateways=of(Gateway),
        listener_sets=of(ListenerSet),
        routes=of(Route),
        controller_routes=of(ControllerRoute),
        namespaces=of(Namespace),
        service_ranges=of(ServiceRange),
        node=next(iter(of(Node)), None),
        config_maps=of(ConfigMap),
        relay_service=next(iter(of(RelayService)), None),
        # While an endpoint moves from one slice to another it may stand in both (KEP-752).
        relay_endpoints=tuple(dict.fromkeys(endpoint for found in of(tuple) for endpoint in found)),
        unreadable=tuple(unreadable),
        not_covered=tuple(not_covered),
    )
