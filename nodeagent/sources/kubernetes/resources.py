"""What is read from the API: one row for each list and watch, and how their objects form a Snapshot."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar, cast

from nodeagent.model import objects as model
from nodeagent.sources.kubernetes.errors import ApiPath
from nodeagent.sources.objects import api, decoding, kinds

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
Key = tuple[str, str]
"""Namespace and name; the namespace is empty for objects without one."""


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
        pairs = (selector.partition("=") for selector in self.selector.values())
        return namespace in {"", metadata.namespace or "default"} and all(
            named.get(key, "") == value or key.startswith("spec.") for key, _, value in pairs
        )


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
    kinds.decode_ingress_class,
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
PROTECTING = {API_SERVERS.name, kinds.SERVICE_RANGES.name}
"""What says which addresses must not be redirected: without an answer about it, no pass is made."""
EXTERNAL_IPS = replace(
    SERVICES,
    name="external-ips",
    decode=decoding.decode_external_ips,
    selector={"fieldSelector": "spec.type!=LoadBalancer"},
    optional=True,
)
"""The externalIPs of Services of other types, for the doctor."""
NODE_ADDRESSES = replace(NODES, decode=decoding.decode_node_addresses, optional=True)
NAMESPACES = Resource("namespaces", "Namespace", "/api/v1/namespaces", kinds.decode_namespace, optional=True)


def optional_resource(kind: kinds.OptionalKind, version: str) -> Resource:
    """Return the row of an optional kind as it is served in a version."""
    path = f"/apis/{kind.group}/{version}/{kind.plural}"
    return Resource(kind.name, kind.kind, path, kind.decode, optional=True)


def optional_names(*, hostnames: bool) -> tuple[str, ...]:
    """Return the names of what is read if it is served; without `hostnames`, of nothing that claims them.

    Namespaces are read for the sake of Gateways: by their labels, listeners choose whom they serve.
    """
    if not hostnames:
        return (kinds.SERVICE_RANGES.name,)
    return (NAMESPACES.name, *(kind.name for kind in kinds.OPTIONAL_KINDS))


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


_Value = TypeVar("_Value")


def assembled(
    collections: Iterable[tuple[object, ...]],
    denied: Iterable[tuple[str, str]] = (),
    pending: Mapping[str, str] = {},
) -> model.Snapshot:
    """Return the Snapshot of collections, each of one kind; the only collection of a kind is used as it is.

    EndpointSlices of an existing relay come as tuples of endpoints, those of the API servers as sets. What is
    `denied` comes with the reason, as what is `pending` does.
    """
    by_type: dict[type, list[tuple[object, ...]]] = {}
    unreadable: list[model.Unreadable] = []
    for collection in collections:
        values = collection
        if model.Unreadable in {*map(type, collection)}:
            unreadable += (value for value in collection if isinstance(value, model.Unreadable))
            values = tuple(value for value in collection if not isinstance(value, model.Unreadable))
        if values:
            by_type.setdefault(type(values[0]), []).append(values)

    def of(kind: type[_Value]) -> tuple[_Value, ...]:
        of_kind = cast("list[tuple[_Value, ...]]", by_type.get(kind, []))
        # Sorted as a whole, if each is.
        of_kind.sort(key=lambda values: getattr(getattr(values[0], "ref", None), "kind", ""))
        return of_kind[0] if len(of_kind) == 1 else tuple(chain.from_iterable(of_kind))

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
        relay_endpoints=tuple(dict.fromkeys(endpoint for endpoints in of(tuple) for endpoint in endpoints)),
        api_servers=frozenset(chain.from_iterable(of(frozenset))),
        unreadable=tuple(unreadable),
        not_covered=tuple(f"{name} not covered: {reason}" for name, reason in denied),
        pending=pending,
    )
