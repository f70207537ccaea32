"""What is read from the API: one row for each list and watch, and how their objects form a Snapshot.

Which optional kinds a server has: "API concepts: API group and resource discovery", in its unaggregated form,
which every version supports. Every authenticated user may read it (ClusterRole system:discovery). A watch on
CustomResourceDefinitions would notice at once, but needs the right to read all of them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from msgspec import Struct

from nodeagent.errors import SourceError
from nodeagent.model import objects as model
from nodeagent.sources.kubernetes.errors import ApiPath, NotFoundError, NotJsonError
from nodeagent.sources.objects import api, decoding
from nodeagent.sources.objects.kinds import (
    GATEWAYS,
    OPTIONAL_KINDS,
    SERVICE_RANGES,
    UNREAD_KINDS,
    OptionalKind,
    decode_ingress_class,
    decode_namespace,
)
from nodeagent.typed_values import from_json

if TYPE_CHECKING:  # manifests are read without a cluster
    from nodeagent.sources.kubernetes.connection import Connection

_APIS = {
    "ConfigMap": "/api/v1",
    "DaemonSet": "/apis/apps/v1",
    "Deployment": "/apis/apps/v1",
    "Pod": "/api/v1",
}


def object_path(ref: model.ObjectRef) -> str:
    """Return the path of an object of nodeagent or CoreDNS."""
    return f"{_APIS[ref.kind]}/namespaces/{ref.namespace}/{ref.kind.lower()}s/{ref.name}"


Name = tuple[str, str]
"""Namespace and name of an existing relay Service."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection that is listed and watched, by its name in status and metrics.

    `decode` returns None for an object that nodeagent does not use; the server sends only what `selector`, of
    fields or labels, selects. A server without an `optional` one, or that denies it, is not an error.
    """

    name: str
    kind: str
    path: str
    decode: Callable[[api.Raw], object | None]
    selector: Mapping[str, str] = field(default_factory=dict, hash=False)
    optional: bool = False

    @property
    def group(self) -> str:
        """The API group of its objects."""
        return ApiPath.parse(self.path).group

    def selects(self, metadata: api.Metadata) -> bool:
        """Whether an object of the kind is in the collection, as far as its metadata says."""
        namespace = ApiPath.parse(self.path).namespace
        named = {**(metadata.labels or {}), "metadata.name": metadata.name}
        pairs = (text.partition("=") for text in self.selector.values())
        return namespace in {"", metadata.namespace or "default"} and all(
            named.get(key, "") == value or key.startswith("spec.") for key, _, value in pairs
        )


Key = tuple[str, str]
"""Namespace and name; the namespace is empty for objects without one."""


DISCOVERY = "discovery"
"""The name in status and metrics for the discovery of optional kinds."""
SERVICES = Resource(
    "services",
    "Service",
    "/api/v1/services",
    decoding.decode_service,
    # Kubernetes has this selector since 1.31.
    {"fieldSelector": "spec.type=LoadBalancer"},
)
INGRESSES = Resource("ingresses", "Ingress", "/apis/networking.k8s.io/v1/ingresses", decoding.decode_ingress)
NODES = Resource("nodes", "Node", "/api/v1/nodes", decoding.decode_node)
INGRESS_CLASSES = Resource(
    "ingressclasses",
    "IngressClass",
    "/apis/networking.k8s.io/v1/ingressclasses",
    decode_ingress_class,
    optional=True,
)
API_SERVERS = Resource(
    "api-server-endpoints",
    "EndpointSlice",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    decoding.decode_api_servers,
    # The API servers write it, under this name. It is selected by name so that RBAC can be as narrow.
    {"fieldSelector": "metadata.name=kubernetes"},
    optional=True,
)
EXTERNAL_IPS = replace(
    SERVICES,
    name="external-ips",
    decode=decoding.decode_external_ips,
    selector={"fieldSelector": "spec.type!=LoadBalancer"},
    optional=True,
)
"""The externalIPs of Services of other types, for the doctor."""
NODE_ADDRESSES = replace(NODES, decode=decoding.decode_node_addresses, optional=True)
NAMESPACES = Resource("namespaces", "Namespace", "/api/v1/namespaces", decode_namespace, optional=True)


def optional_resource(kind: OptionalKind, version: str) -> Resource:
    """Return the row of an optional kind as it is served in a version."""
    path = f"/apis/{kind.group}/{version}/{kind.plural}"
    return Resource(kind.name, kind.kind, path, kind.decode, optional=True)


def not_covered(name: str, reason: str) -> str:
    """Return the line about a kind that the server has and denies."""
    return f"{name} not covered: {reason}"


def optional_names(*, hostnames: bool) -> tuple[str, ...]:
    """Return the names of what is read if it is served; without `hostnames`, of nothing that claims them.

    Namespaces are read for the sake of Gateways: by their labels, listeners choose whom they serve.
    """
    return (NAMESPACES.name, *(kind.name for kind in OPTIONAL_KINDS)) if hostnames else (SERVICE_RANGES.name,)


def own_node(node_name: str) -> Resource:
    """Return the collection that is this node's Node alone."""
    return replace(NODES, name="node", selector={"fieldSelector": f"metadata.name={node_name}"})


def watched(node_name: str, relay: Name | None = None, *, hostnames: bool = True) -> tuple[Resource, ...]:
    """Return everything to list and watch in every cluster; the arguments are those of `Cluster`."""
    rows = [SERVICES, own_node(node_name), API_SERVERS, *([INGRESSES, INGRESS_CLASSES] if hostnames else [])]
    if relay is not None:
        namespace, name = relay
        rows += [
            Resource(
                "relay-service",
                "Service",
                f"/api/v1/namespaces/{namespace}/services",
                decoding.decode_relay_service,
                {"fieldSelector": f"metadata.name={name}"},
            ),
            Resource(
                "relay-endpoints",
                "EndpointSlice",
                f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
                decoding.decode_relay_endpoints,
                # The label is how slices name their Service (KEP-752).
                {"labelSelector": f"kubernetes.io/service-name={name}"},
            ),
        ]
    return tuple(rows)


_DISCOVERY_SECONDS = 15.0


class _Version(Struct):
    version: str


class _Group(Struct):
    name: str
    versions: list[_Version]


class _Groups(Struct):
    groups: list[_Group]


class _Served(Struct):
    name: str
    verbs: list[str] = msgspec.field(default_factory=list)


class _ServedKinds(Struct):
    resources: list[_Served]


_Answer = TypeVar("_Answer")


def discover(connection: "Connection", *, hostnames: bool) -> dict[str, Resource | SourceError]:
    """Ask group by group which optional kinds are served; raises nothing.

    Returns:
        By the kind's name, its row in the best version that can be read; NotFoundError: the server says that
        there is no such kind; another error: it did not say.
    """
    try:
        answer = _ask(connection, "/apis", _Groups).groups
    except SourceError as error:
        # No API server lacks this path: whatever said so knows nothing of kinds.
        failure = NotJsonError(str(error)) if isinstance(error, NotFoundError) else error
        return dict.fromkeys(optional_names(hostnames=hostnames), failure)
    groups = {group.name: {one.version for one in group.versions} for group in answer}

    @cache
    def plurals(group: str, version: str) -> frozenset[str] | SourceError:
        try:
            return served_plurals(connection, group, version)
        except NotFoundError:
            return frozenset()
        except SourceError as error:
            return error

    kinds = OPTIONAL_KINDS if hostnames else (SERVICE_RANGES,)
    found = {kind.name: _best(kind, groups.get(kind.group), plurals) for kind in kinds}
    if hostnames:
        gateways = found[GATEWAYS.name]
        found[NAMESPACES.name] = NAMESPACES if isinstance(gateways, Resource) else gateways
    return found


def _best(
    kind: OptionalKind,
    served: Collection[str] | None,
    plurals: Callable[[str, str], frozenset[str] | SourceError],
) -> Resource | SourceError:
    """Return the kind's row in the best of the `served` versions of its group, as `discover` does."""
    if kind is SERVICE_RANGES and served is None:
        return NotJsonError(f"get /apis: the answer lacks {kind.group}, which every API server has")
    for version in (each for each in kind.versions if each in (served or ())):
        found = plurals(kind.group, version)
        if isinstance(found, SourceError):
            return found
        if kind.plural in found:
            return optional_resource(kind, version)
    return NotFoundError(f"get /apis: the API server has no {kind.name}")


def unread_kinds(connection: "Connection") -> tuple[str, ...]:
    """Return the served kinds that claim hostnames and are not read. Raises ApiError."""
    return tuple(
        f"{plural}.{group.name}"
        for group in _ask(connection, "/apis", _Groups).groups
        for plural in UNREAD_KINDS.get(group.name, ())
        if any(plural in served_plurals(connection, group.name, one.version) for one in group.versions)
    )


def served_plurals(connection: "Connection", group: str, version: str) -> frozenset[str]:
    """Return the names in paths of what is served of a group's version, and may be listed and watched.

    Raises ApiError; NotFoundError: there is no such group or version.
    """
    found = _ask(connection, f"/apis/{group}/{version}", _ServedKinds).resources
    return frozenset(one.name for one in found if {"list", "watch"} <= {*one.verbs})


def _ask(connection: "Connection", path: str, expected: type[_Answer]) -> _Answer:
    try:
        return from_json(connection.get_json(path, timeout=_DISCOVERY_SECONDS), expected)
    except msgspec.MsgspecError as error:
        raise NotJsonError(f"get {path}: the answer does not show what is served: {error}") from error


_Value = TypeVar("_Value")


def assembled(
    collections: Iterable[tuple[object, ...]],
    not_covered: Iterable[str] = (),
    pending: Mapping[str, str] = {},
) -> model.Snapshot:
    """Return the Snapshot of collections, each of one kind; the only collection of a kind is used as it is.

    Each may have entries for objects that can't be read. EndpointSlices of an existing relay come as tuples
    of endpoints, those of the API servers as sets.
    """
    by_type: dict[type, list[tuple[object, ...]]] = {}
    unreadable: list[model.Unreadable] = []
    for held in collections:
        values = held
        if model.Unreadable in {*map(type, held)}:
            unreadable += (each for each in held if isinstance(each, model.Unreadable))
            values = tuple(each for each in held if not isinstance(each, model.Unreadable))
        if values:
            by_type.setdefault(type(values[0]), []).append(values)

    def of(kind: type[_Value]) -> tuple[_Value, ...]:
        found = cast("list[tuple[_Value, ...]]", by_type.get(kind, []))
        # Sorted as a whole, if each is.
        found.sort(key=lambda values: getattr(getattr(values[0], "ref", None), "kind", ""))
        return found[0] if len(found) == 1 else tuple(chain.from_iterable(found))

    return model.Snapshot(
        services=of(model.Service),
        ingresses=of(model.Ingress),
        ingress_classes=of(model.IngressClass),
        gateways=of(model.Gateway),
        listener_sets=of(model.ListenerSet),
        routes=of(model.Route),
        controller_routes=of(model.ControllerRoute),
        namespaces=of(model.Namespace),
        service_ranges=of(model.ServiceRange),
        node=next(iter(of(model.Node)), None),
        nodes=of(model.NodeAddresses),
        external_ips=of(model.ExternalIPs),
        relay_service=next(iter(of(model.RelayService)), None),
        # While an endpoint moves from one slice to another, it may be in both (KEP-752).
        relay_endpoints=tuple(dict.fromkeys(endpoint for found in of(tuple) for endpoint in found)),
        api_servers=frozenset(chain.from_iterable(of(frozenset))),
        unreadable=tuple(unreadable),
        not_covered=tuple(not_covered),
        pending=pending,
    )
