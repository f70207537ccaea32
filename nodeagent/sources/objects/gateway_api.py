"""Decodes the Gateway API's objects, as JSON bytes or as plain dicts, into the model's values. Pure."""

from collections.abc import Iterable
from typing import Any

from nodeagent.errors import quoted
from nodeagent.model.objects import (
    GATEWAY_API,
    AllowedNamespaces,
    Gateway,
    GatewayListener,
    LabelRule,
    ListenerSet,
    LoadBalancerPoint,
    Namespace,
    ParentRef,
    Route,
)
from nodeagent.sharing import shared
from nodeagent.sources.objects import api
from nodeagent.sources.objects.decoding import (
    DecodingError,
    address_of,
    check_size,
    created_of,
    deciding_annotations,
    decode,
    ref_of,
    some_hosts,
    some_problems,
)

Raw = bytes | dict[str, Any]


def decode_namespace(raw: Raw) -> Namespace:
    """Return the Namespace with all of its labels: any selector may use any. Raises DecodingError."""
    metadata = decode(raw, api.Head).metadata
    check_size(raw, metadata.labels)
    return Namespace(ref_of("Namespace", metadata).name, metadata.labels or {})


def decode_gateway(raw: Raw) -> Gateway:
    """Return the Gateway. Raises DecodingError, also for a selector that can't be understood."""
    found = decode(raw, api.Gateway)
    check_size(raw, found.spec, found.status)
    spec = found.spec or api.GatewaySpec()
    problems: list[str] = []
    allowed = spec.allowed_listeners.namespaces if spec.allowed_listeners else None
    return Gateway(
        ref=ref_of("Gateway", found.metadata),
        created=created_of(found.metadata),
        listeners=tuple(map(_listener, spec.listeners or ())),
        points=_points(found.status, problems),
        allowed_listeners=_allowed(allowed, "None"),
        annotations=deciding_annotations(found.metadata),
        problems=some_problems(problems),
    )


def decode_listener_set(raw: Raw) -> ListenerSet:
    """Return the ListenerSet. Raises DecodingError."""
    found = decode(raw, api.ListenerSet)
    check_size(raw, found.spec)
    ref = ref_of("ListenerSet", found.metadata)
    return ListenerSet(
        ref=ref,
        parent=_parent(found.spec.parent_ref, ref.namespace),
        listeners=tuple(map(_listener, found.spec.listeners or ())),
        annotations=deciding_annotations(found.metadata),
    )


def decode_route(raw: Raw, kind: str) -> Route:
    """Return the HTTPRoute, GRPCRoute or TLSRoute. Raises DecodingError."""
    found = decode(raw, api.Route)
    spec = found.spec or api.RouteSpec()
    check_size(raw, spec.parent_refs, found.status)
    ref = ref_of(kind, found.metadata)
    parents = found.status.parents if found.status else None
    problems: list[str] = []
    hostnames = some_hosts(spec.hostnames or (), problems)
    return Route(
        ref=ref,
        created=created_of(found.metadata),
        hostnames=hostnames,
        parents=tuple(_parent(parent, ref.namespace) for parent in spec.parent_refs or ()),
        declined=_declined(parents or (), ref.namespace, found.metadata.generation),
        annotations=deciding_annotations(found.metadata),
        problems=some_problems(problems),
    )


def _declined(
    parents: Iterable[api.RouteParent], namespace: str, generation: int | None
) -> tuple[ParentRef, ...]:
    """Return the parents that say `Accepted: False` of the Route as it is now, and never True."""
    said: dict[ParentRef, set[str]] = {}
    for parent in parents:
        for condition in parent.conditions or ():
            observed = condition.observed_generation
            if condition.type == "Accepted" and (not observed or not generation or observed >= generation):
                said.setdefault(_parent(parent.parent_ref, namespace), set()).add(condition.status)
    return tuple(parent for parent, statuses in said.items() if statuses == {"False"})


def _parent(found: api.Reference, namespace: str) -> ParentRef:
    # Thousands of Routes have the same parent.
    return shared(
        ParentRef(
            GATEWAY_API if found.group is None else found.group,
            found.kind or "Gateway",
            found.namespace or namespace,
            found.name,
            found.section_name,
            found.port,
        )
    )


def _listener(found: api.Listener) -> GatewayListener:
    allowed = found.allowed_routes or api.Allowed()
    return GatewayListener(
        name=found.name,
        port=found.port,
        protocol=found.protocol,
        hostname=found.hostname or None,
        kinds=tuple(
            (GATEWAY_API if kind.group is None else kind.group, kind.kind) for kind in allowed.kinds or ()
        ),
        namespaces=_allowed(allowed.namespaces, "Same"),
    )


def _allowed(found: api.Namespaces | None, default: str) -> AllowedNamespaces:
    match (found.origin if found else None) or default:
        case "All" | "Same" | "None" as origin:
            return AllowedNamespaces(origin)
        case "Selector":
            return AllowedNamespaces(
                "Selector", _rules((found.selector if found else None) or api.Selector())
            )
        case other:
            raise DecodingError(f"namespaces.from: {quoted(other)} is not one of All, Same, Selector, None")


_MOST_RULES = 64
"""Labels, expressions and their values in one selector."""


def _rules(selector: api.Selector) -> tuple[LabelRule, ...]:
    expressions = selector.match_expressions or ()
    values = sum(len(each.values or ()) for each in expressions)
    if len(selector.match_labels or ()) + len(expressions) + values > _MOST_RULES:
        # One that is cut off would mean something else.
        raise DecodingError(f"a label selector has more than {_MOST_RULES} labels, expressions and values")
    rules = [LabelRule(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()]
    for found in expressions:
        match found.operator:
            case "In" | "NotIn" | "Exists" | "DoesNotExist" as operator:
                rules.append(LabelRule(found.key, operator, tuple(found.values or ())))
            case other:
                raise DecodingError(f"matchExpressions: {quoted(other)} is not an operator")
    return tuple(rules)


def _points(status: api.GatewayStatus | None, problems: list[str]) -> tuple[LoadBalancerPoint, ...]:
    """Return what the controller reported; its own address types mean nothing to others."""
    points = []
    for index, entry in enumerate((status.addresses if status else None) or ()):
        if not entry.value:
            continue
        if entry.type == "Hostname":
            points.append(LoadBalancerPoint(None, entry.value))
        elif entry.type in {None, "IPAddress"}:
            address = address_of(entry.value)
            if address is None:
                text = f"status.addresses[{index}].value: {quoted(entry.value)} is not an IP address"
                problems.append(text)
            else:
                points.append(LoadBalancerPoint(address))
    return tuple(points)
