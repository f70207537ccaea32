"""The API's objects as received: of each, the few fields that are used, under the API's own names.

They are the same in all versions that are read. What the API server fills in may be missing in manifests.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, field

from nodeagent.errors import SourceError, one_line
from nodeagent.typed_values import from_json, from_plain, plain_words


class Name(Struct):
    name: str
    namespace: str | None = None


class Metadata(Name):
    uid: str | None = None
    creationTimestamp: datetime | None = None
    deletionTimestamp: datetime | None = None
    generation: int | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class Named(Struct):
    metadata: Name


class Head(Struct):
    metadata: Metadata


_Spec = TypeVar("_Spec")
_Status = TypeVar("_Status")


class Specified(Head, Generic[_Spec]):
    spec: _Spec | None = None


class Object(Specified[_Spec], Generic[_Spec, _Status]):
    status: _Status | None = None


class Point(Struct, rename="camel"):
    """An entry of `status.loadBalancer.ingress`, and of the like in controllers' own kinds."""

    ip: str | None = None
    hostname: str | None = None
    ip_mode: str | None = None


class _LoadBalancer(Struct):
    ingress: list[Point] | None = None


class Status(Struct, rename="camel"):
    load_balancer: _LoadBalancer | None = None


class _Port(Struct):
    port: int
    nodePort: int | None = None
    name: str | None = None
    protocol: str | None = None


class ServiceSpec(Struct):
    type: str | None = None
    clusterIP: str | None = None
    clusterIPs: list[str] | None = None
    ports: list[_Port] | None = None
    loadBalancerClass: str | None = None
    externalIPs: list[str] | None = None
    internalTrafficPolicy: str | None = None


Service = Object[ServiceSpec, Status]


class _Tls(Struct):
    hosts: list[str] | None = None


class _Rule(Struct):
    host: str | None = None


class IngressSpec(Struct, rename="camel"):
    ingress_class_name: str | None = None
    tls: list[_Tls] | None = None
    rules: list[_Rule] | None = None


Ingress = Object[IngressSpec, Status]


class _IngressClassSpec(Struct):
    controller: str | None = None


IngressClass = Specified[_IngressClassSpec]


class _ServiceCIDRSpec(Struct):
    cidrs: list[str] | None = None


ServiceCIDR = Specified[_ServiceCIDRSpec]


class NodeSpec(Struct):
    podCIDR: str | None = None
    podCIDRs: list[str] | None = None
    providerID: str | None = None


class _NodeAddress(Struct):
    type: str
    address: str


class _NodeStatus(Struct):
    addresses: list[_NodeAddress] | None = None


Node = Object[NodeSpec, _NodeStatus]


class _Conditions(Struct):
    ready: bool | None = None


class _SliceEndpoint(Struct, rename="camel"):
    addresses: list[str]
    conditions: _Conditions | None = None
    node_name: str | None = None


class _SlicePort(Struct):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Head):
    endpoints: list[_SliceEndpoint] | None = None
    ports: list[_SlicePort] | None = None


class Reference(Struct, rename="camel"):
    """A parentRef of a Route or a ListenerSet."""

    name: str
    group: str | None = None
    kind: str | None = None
    namespace: str | None = None
    section_name: str | None = None
    port: int | None = None


class _Expression(Struct):
    key: str
    operator: str
    values: list[str] | None = None


class Selector(Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class Namespaces(Struct):
    """`allowedRoutes.namespaces` and `allowedListeners.namespaces`."""

    origin: str | None = field(default=None, name="from")
    selector: Selector | None = None


class _RouteKind(Struct):
    kind: str
    group: str | None = None


class Allowed(Struct):
    """`allowedRoutes` of a listener, and `allowedListeners` of a Gateway, which has no kinds."""

    namespaces: Namespaces | None = None
    kinds: list[_RouteKind] | None = None


class Listener(Struct, rename="camel"):
    name: str
    protocol: str
    port: int = 0
    hostname: str | None = None
    allowed_routes: Allowed | None = None


class GatewaySpec(Struct, rename="camel"):
    listeners: list[Listener] | None = None
    allowed_listeners: Allowed | None = None


class _GatewayAddress(Struct):
    value: str | None = None
    type: str | None = None


class _GatewayStatus(Struct):
    addresses: list[_GatewayAddress] | None = None


Gateway = Object[GatewaySpec, _GatewayStatus]


class _ListenerSetSpec(Struct, rename="camel"):
    parent_ref: Reference
    listeners: list[Listener] | None = None


class ListenerSet(Head):
    spec: _ListenerSetSpec


class _Condition(Struct, rename="camel"):
    type: str
    status: str
    observed_generation: int | None = None


class RouteParent(Struct, rename="camel"):
    """What one controller says about a Route on one parent."""

    parent_ref: Reference
    conditions: list[_Condition] | None = None


class _RouteStatus(Struct):
    parents: list[RouteParent] | None = None


class RouteSpec(Struct, rename="camel"):
    parent_refs: list[Reference] | None = None
    hostnames: list[str] | None = None
    use_default_gateways: str | None = None


Route = Object[RouteSpec, _RouteStatus]

Raw = bytes | dict[str, Any]
"""An object: as JSON, or as plain values."""
_Object = TypeVar("_Object")


class DecodingError(SourceError):
    """One object can't be read at all; the others are still served."""


def decode(raw: Raw, expected: type[_Object]) -> _Object:
    """Return the object as the Struct `expected`. Raises DecodingError."""
    try:
        if isinstance(raw, bytes):
            return from_json(raw, expected)
        return from_plain(raw, expected)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DecodingError(one_line(plain_words(error))) from error


_MOST_USED = 64 * 1024
"""Bytes of the parts of an object that are used, for kinds whose lists have no bounds of their own."""


def check_size(raw: Raw, *parts: object) -> None:
    """Raise DecodingError if the parts of an object that are used are larger than any real one's.

    A label selector of 1.5 MB takes 22 MB as a value; one that is cut off would mean something else.
    """
    if isinstance(raw, bytes) and len(raw) > _MOST_USED and len(msgspec.json.encode(parts)) > _MOST_USED:
        raise DecodingError(f"more than {_MOST_USED} bytes besides annotations and hostnames")


def values_at(value: object, path: str) -> Sequence[object]:
    """Return the values at a path, in which `[]` is every item of a list, as far as they are there."""
    values = [value]
    for step in path.replace("[]", ".[]").split("."):
        if step == "[]":
            values = [item for parent in values if isinstance(parent, list) for item in parent]
        else:
            values = [parent[step] for parent in values if isinstance(parent, dict) and step in parent]
    return values


def texts_at(value: object, *paths: str) -> Iterator[str]:
    """Yield the texts at the paths, and no value of another type."""
    return (text for path in paths for text in values_at(value, path) if isinstance(text, str))
