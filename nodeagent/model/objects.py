"""The cluster's objects: the few fields of the few kinds on which decisions depend."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, IPAddress, IPNetwork

EXCLUDE = "nodeagent.io/exclude"
"""`"true"` on a Service, an Ingress, a Gateway or a Route: nodeagent ignores the object."""
PROXY_PROTOCOL = "nodeagent.io/proxy-protocol"
"""`v1`, `v2` or `off` on a Service: what its load balancer sends, whatever its provider."""
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
"""Which controller serves an Ingress: the way before spec.ingressClassName (Kubernetes 1.18)."""
EXTERNAL_DNS = ("external-dns.kubernetes.io/hostname", "external-dns.alpha.kubernetes.io/hostname")
"""Hostnames, with commas between them, for which external-dns makes records: since 0.22, and before."""
NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
"""One empty mapping for all: of ten thousand Routes, hardly any has an annotation that decides."""
GATEWAY_API = "gateway.networking.k8s.io"
ProxyVersion = Literal["v1", "v2"]


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """Names one object of the cluster, as a person would look it up."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"

    @property
    def path(self) -> str:
        """`namespace/name`, or `name` alone for an object without a namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class LoadBalancerPoint(Struct, frozen=True):
    """One entry of `status.loadBalancer.ingress`; `ip_mode` is VIP or Proxy; None means VIP (KEP-1860)."""

    ip: IPAddress | None
    hostname: str | None = None
    ip_mode: str | None = None


class ServicePort(Struct, frozen=True):
    """One port of a Service; `protocol` is TCP, UDP or SCTP, `node_port` is 0 if it has none."""

    name: str
    protocol: str
    port: int
    node_port: int = 0


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """What each object has: `annotations` are those that decide, `problems` fields that can't be read."""

    ref: ObjectRef
    created: datetime | None = None
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_ANNOTATIONS, hash=False, kw_only=True)
    problems: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Service(ClusterObject):
    """A Service of type LoadBalancer.

    `gateway` is the Gateway for which it was made, if any; an empty `gateway_namespace` is its own. Anyone
    can be the author of `external_ips`. `local_only`: its ClusterIP leads only to pods of the node.
    """

    cluster_ips: tuple[IPAddress, ...] = ()
    ports: tuple[ServicePort, ...] = ()
    points: tuple[LoadBalancerPoint, ...] = ()
    uid: str = ""
    gateway: str | None = None
    gateway_namespace: str = ""
    load_balancer_class: str | None = None
    external_ips: tuple[IPAddress, ...] = ()
    local_only: bool = False

    @property
    def load_balancer_ips(self) -> tuple[IPAddress, ...]:
        """The addresses of the load balancer, in the order of the status, both families."""
        return tuple(point.ip for point in self.points if point.ip is not None)

    @property
    def short_circuited_ips(self) -> tuple[IPAddress, ...]:
        """Those that kube-proxy short-circuits: not in ipMode Proxy, or externalIPs as well (KEP-1860)."""
        points = (point for point in self.points if point.ip_mode != "Proxy" or point.ip in self.external_ips)
        return tuple(point.ip for point in points if point.ip is not None)

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """In order: PROXY exists only for TCP."""
        return tuple(sorted({port.port for port in self.ports if port.protocol == "TCP"}))


@dataclass(frozen=True, slots=True)
class Ingress(ClusterObject):
    """The hosts it claims, as written, and the addresses its controller reported."""

    class_name: str | None = None
    hosts: tuple[str, ...] = ()
    points: tuple[LoadBalancerPoint, ...] = ()


class IngressClass(Struct, frozen=True):
    """`default`: it is marked as the one for Ingresses that name none."""

    name: str
    controller: str | None = None
    default: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """This node's Node object; `provider_id` is such as `hcloud://4711`, empty if no cloud has set it.

    `external_addresses` are those of type ExternalIP: on an interface of the node, or translated elsewhere.
    """

    name: str
    pod_cidrs: tuple[IPNetwork, ...] = ()
    addresses: tuple[IPAddress, ...] = ()
    names: tuple[str, ...] = ()
    provider_id: str = ""
    external_addresses: tuple[IPAddress, ...] = ()


class NodeAddresses(Struct, frozen=True):
    """The name, addresses and `spec.providerID` of one node of the cluster, whichever it is."""

    name: str
    addresses: frozenset[IPAddress]
    provider_id: str = ""


class ExternalIPs(Struct, frozen=True):
    """The `spec.externalIPs` of a Service, which kube-proxy redirects whatever a status says."""

    ref: ObjectRef
    addresses: tuple[IPAddress, ...]
    ports: tuple[ServicePort, ...] = ()


class ServiceRange(Struct, frozen=True):
    """A ServiceCIDR: ranges that the API server takes ClusterIPs from (KEP-1880)."""

    name: str
    networks: tuple[IPNetwork, ...] = ()


class RelayService(Struct, frozen=True):
    """An existing relay (`relay.kind: service`), such as hairpin-proxy's."""

    ref: ObjectRef
    cluster_ips: tuple[IPAddress, ...] = ()
    ports: tuple[ServicePort, ...] = ()


class RelayEndpoint(Struct, frozen=True):
    """One port of one pod of the relay Service: the name is the Service's, the number the pod's own."""

    address: IPAddress
    port_name: str
    port: int
    node_name: str | None = None
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Namespace:
    """A Namespace and its labels, by which listeners choose which namespaces they serve."""

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: NO_ANNOTATIONS, hash=False)


class LabelRule(Struct, frozen=True):
    """One requirement of a label selector; `matchLabels` are In with one value."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AllowedNamespaces:
    """From which namespaces something may be attached; `selector` counts with Selector only."""

    origin: Literal["Same", "All", "Selector", "None"] = "Same"
    selector: tuple[LabelRule, ...] = ()


class ParentRef(Struct, frozen=True):
    """What a Route or a ListenerSet wants to be attached to: without a section or a port, to all of it."""

    group: str
    kind: str
    namespace: str
    name: str
    section: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class GatewayListener:
    """A listener of a Gateway or of a ListenerSet; `hostname` is None for all hostnames.

    `kinds` are group and kind of the Routes it takes; empty for the default kinds of its protocol.
    """

    name: str
    port: int
    protocol: str
    hostname: str | None = None
    kinds: tuple[tuple[str, str], ...] = ()
    namespaces: AllowedNamespaces = AllowedNamespaces()


@dataclass(frozen=True, slots=True)
class Gateway(ClusterObject):
    """A Gateway: its listeners, the addresses its controller reported, and who may add listeners to it."""

    listeners: tuple[GatewayListener, ...] = ()
    points: tuple[LoadBalancerPoint, ...] = ()
    allowed_listeners: AllowedNamespaces = AllowedNamespaces("None")


@dataclass(frozen=True, slots=True)
class ListenerSet:
    """Listeners that another object adds to a Gateway (GEP-1713)."""

    ref: ObjectRef
    parent: ParentRef
    listeners: tuple[GatewayListener, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=lambda: NO_ANNOTATIONS, hash=False)


@dataclass(frozen=True, slots=True)
class Route(ClusterObject):
    """An HTTPRoute, GRPCRoute or TLSRoute: its hostnames, as written, and what it is attached to.

    `declined` are the parents whose controllers said in its status that they do not accept it as it is.
    """

    hostnames: tuple[str, ...] = ()
    parents: tuple[ParentRef, ...] = ()
    declined: tuple[ParentRef, ...] = ()


@dataclass(frozen=True, slots=True)
class ControllerRoute(ClusterObject):
    """An object of a controller's own API that claims hosts; `controller`: its name in IngressClasses."""

    controller: str | None = None
    class_name: str | None = None
    hosts: tuple[str, ...] = ()
    points: tuple[LoadBalancerPoint, ...] = ()


class Unreadable(Struct, frozen=True, order=True):
    """An object that could not be used at all: where it is, and why. Everything else is served.

    `decisive`: it hides what everything may depend on, as a file that is not YAML and a Node do.
    """

    where: str
    reason: str
    decisive: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment. Order of the members does not matter to any decision.

    `other_cluster_ips` are those of Services of other types, `api_servers` what the API servers publish.
    `nodes` are all, and `external_ips` those of other Services, for the doctor alone. `not_covered` is what
    the API server has and denies; `pending` which kinds were never read so far, and why.
    """

    services: tuple[Service, ...] = ()
    ingresses: tuple[Ingress, ...] = ()
    ingress_classes: tuple[IngressClass, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    listener_sets: tuple[ListenerSet, ...] = ()
    routes: tuple[Route, ...] = ()
    controller_routes: tuple[ControllerRoute, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    service_ranges: tuple[ServiceRange, ...] = ()
    other_cluster_ips: frozenset[IPAddress] = frozenset()
    node: Node | None = None
    nodes: tuple[NodeAddresses, ...] = ()
    external_ips: tuple[ExternalIPs, ...] = ()
    relay_service: RelayService | None = None
    relay_endpoints: tuple[RelayEndpoint, ...] = ()
    api_servers: frozenset[Endpoint] = frozenset()
    unreadable: tuple[Unreadable, ...] = ()
    not_covered: tuple[str, ...] = ()
    pending: Mapping[str, str] = field(default_factory=lambda: NO_ANNOTATIONS, hash=False)


Age = tuple[bool, float, str, str, str]


def by_age(found: ClusterObject) -> Age:
    """Return a key that sorts the oldest first; an object without a creation time counts as the newest."""
    created = found.created.timestamp() if found.created else 0.0
    return (found.created is None, created, found.ref.namespace, found.ref.name, found.ref.kind)
