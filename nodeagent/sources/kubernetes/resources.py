"""What is read from the API: one row for each list and watch, and how their objects form a Snapshot."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import Struct

from nodeagent.model.objects import ObjectRef, Unreadable
from nodeagent.sources.kubernetes.errors import ApiPath
from nodeagent.sources.objects.api import Metadata
from nodeagent.sources.objects.decoding import (
    decode_api_servers,
    decode_ingress,
    decode_node,
    decode_node_addresses,
    decode_relay_endpoints,
    decode_relay_service,
    decode_service,
)
from nodeagent.sources.objects.gateway_api import decode_namespace
from nodeagent.sources.objects.kinds import (
    GATEWAYS,
    OPTIONAL_KINDS,
    OptionalKind,
    decode_ingress_class,
)

_APIS = {
    "ConfigMap": "/api/v1",
    "DaemonSet": "/apis/apps/v1",
    "Deployment": "/apis/apps/v1",
}


def collection_path(ref: ObjectRef) -> str:
    """Return the path of the collection that one of nodeagent's or CoreDNS's own objects is in."""
    return f"{_APIS[ref.kind]}/namespaces/{ref.namespace}/{ref.kind.lower()}s"


def object_path(ref: ObjectRef) -> str:
    """Return the path of such an object."""
    return f"{collection_path(ref)}/{ref.name}"


Name = tuple[str, str]
"""Namespace and name of an existing relay Service."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection that is listed and watched.

    Attributes:
        name: what status and metrics call it.
        kind: the kind of its objects.
        path: the collection's path.
        decode: one object to its value; None for an object that nodeagent does not use; raises
            DecodingError.
        selector: fieldSelector or labelSelector, so that the server sends only what is used.
        dispensable: `decode` alone selects as well, if the server rejects the selector with 400.
        optional: a server without it, or that denies it, is not an error.
        only_with: the name of another optional resource for which alone it is read; empty for none.
    """

    name: str
    kind: str
    path: str
    decode: Callable[[bytes | dict[str, Any]], object | None]
    selector: Mapping[str, str] = field(default_factory=dict, hash=False)
    dispensable: bool = False
    optional: bool = False
    only_with: str = ""

    @property
    def group(self) -> str:
        """The API group of its objects; empty for Kubernetes' first one."""
        return ApiPath.parse(self.path).group

    def selects(self, metadata: Metadata) -> bool:
        """Whether an object of the kind is in the collection, as far as its metadata says."""
        namespace = ApiPath.parse(self.path).namespace
        named = {**(metadata.labels or {}), "metadata.name": metadata.name}
        pairs = (text.partition("=") for text in self.selector.values())
        return namespace in {"", metadata.namespace or "default"} and all(
            named.get(key, "") == value or key.startswith("spec.") for key, _, value in pairs
        )

    def widened(self) -> "Resource":
        """Return the same without its selector, for a server that does not know it."""
        return replace(self, selector={}, dispensable=False)


Key = tuple[str, str]
"""Namespace and name; the namespace is empty for objects without one."""


class Item(Struct, frozen=True):
    """One held object: its value, at which resourceVersion.

    Attributes:
        version: its resourceVersion. Comparing numerically is allowed: KEP-5504, and etcd's revisions always
            were numbers.
        value: its decoded value; None for an object that nodeagent does not use, or that can't be read.
        unreadable: why it can't be read.
    """

    version: int
    value: object | None = None
    unreadable: Unreadable | None = None


DISCOVERY = "discovery"
"""The name in status and metrics for the discovery of optional kinds."""

SERVICES = Resource(
    "services",
    "Service",
    "/api/v1/services",
    decode_service,
    # Kubernetes has this selector since 1.31.
    {"fieldSelector": "spec.type=LoadBalancer"},
    dispensable=True,
)
INGRESSES = Resource("ingresses", "Ingress", "/apis/networking.k8s.io/v1/ingresses", decode_ingress)
NODES = Resource("nodes", "Node", "/api/v1/nodes", decode_node)
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
    decode_api_servers,
    # The API servers write it, under this name. It is selected by name so that RBAC can be as narrow.
    {"fieldSelector": "metadata.name=kubernetes"},
    optional=True,
)
NODE_ADDRESSES = replace(NODES, decode=decode_node_addresses, optional=True)
EVERYWHERE = (INGRESS_CLASSES, API_SERVERS, NODE_ADDRESSES)
"""What every cluster serves, and may deny."""
NAMESPACES = Resource(
    "namespaces", "Namespace", "/api/v1/namespaces", decode_namespace, optional=True, only_with=GATEWAYS.name
)

OPTIONAL_NAMES = (*(row.name for row in EVERYWHERE), NAMESPACES.name, *(kind.name for kind in OPTIONAL_KINDS))
RESOURCE_NAMES = (
    "services",
    "ingresses",
    "node",
    "relay-service",
    "relay-endpoints",
    DISCOVERY,
    *OPTIONAL_NAMES,
)
"""All resources in metrics."""


def optional_resource(kind: OptionalKind, version: str) -> Resource:
    """Return the row of an optional kind as it is served in a version."""
    path = f"/apis/{kind.group}/{version}/{kind.plural}"
    return Resource(kind.name, kind.kind, path, kind.decode, optional=True)


def not_covered(name: str, reason: str) -> str:
    """Return the line about a kind that the server has and denies."""
    return f"{name} not covered: {reason}"


def watched(node_name: str, relay: Name | None = None) -> tuple[Resource, ...]:
    """Return everything to list and watch in every cluster.

    Args:
        node_name: this node's name.
        relay: namespace and name of an existing relay Service; None if this node relays itself.
    """
    own = replace(NODES, name="node", selector={"fieldSelector": f"metadata.name={node_name}"})
    rows = [SERVICES, INGRESSES, own]
    if relay is not None:
        namespace, name = relay
        rows += [
            Resource(
                "relay-service",
                "Service",
                f"/api/v1/namespaces/{namespace}/services",
                decode_relay_service,
                {"fieldSelector": f"metadata.name={name}"},
            ),
            Resource(
                "relay-endpoints",
                "EndpointSlice",
                f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
                decode_relay_endpoints,
                # The label is how slices name their Service (KEP-752).
                {"labelSelector": f"kubernetes.io/service-name={name}"},
            ),
        ]
    return tuple(rows)
