"""The API's objects as received: of each, the few fields that are used, under the API's own names.

The Gateway API's are the same in all versions that are read (v1, v1beta1, v1alpha2, v1alpha3). Values that
the API server fills in by default may be missing in manifests on disk.
"""

from datetime import datetime

from msgspec import Struct, field


class Metadata(Struct):
    """ObjectMeta."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    creationTimestamp: datetime | None = None  # noqa: N815 - the API's field
    deletionTimestamp: datetime | None = None  # noqa: N815
    generation: int | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class Head(Struct):
    """What every object has."""

    metadata: Metadata


class Point(Struct, rename="camel"):
    """An entry of `status.loadBalancer.ingress`."""

    ip: str | None = None
    hostname: str | None = None
    ip_mode: str | None = None


class LoadBalancer(Struct):
    """`status.loadBalancer`."""

    ingress: list[Point] | None = None


class Status(Struct, rename="camel"):
    """The status of a Service or an Ingress."""

    load_balancer: LoadBalancer | None = None


class Port(Struct):
    """A Service's port."""

    port: int
    nodePort: int | None = None  # noqa: N815 - the API's name
    name: str | None = None
    protocol: str | None = None


class ServiceSpec(Struct):
    """A Service's spec."""

    type: str | None = None
    clusterIP: str | None = None  # noqa: N815 - the API's field
    clusterIPs: list[str] | None = None  # noqa: N815
    ports: list[Port] | None = None
    loadBalancerClass: str | None = None  # noqa: N815
    externalIPs: list[str] | None = None  # noqa: N815
    internalTrafficPolicy: str | None = None  # noqa: N815


class Service(Head):
    """core/v1 Service."""

    spec: ServiceSpec | None = None
    status: Status | None = None


class Tls(Struct):
    """An Ingress's TLS section."""

    hosts: list[str] | None = None


class Rule(Struct):
    """An Ingress's rule."""

    host: str | None = None


class IngressSpec(Struct, rename="camel"):
    """An Ingress's spec."""

    ingress_class_name: str | None = None
    tls: list[Tls] | None = None
    rules: list[Rule] | None = None


class Ingress(Head):
    """networking.k8s.io/v1 Ingress."""

    spec: IngressSpec | None = None
    status: Status | None = None


class IngressClassSpec(Struct):
    """An IngressClass's spec."""

    controller: str | None = None


class IngressClass(Head):
    """networking.k8s.io/v1 IngressClass."""

    spec: IngressClassSpec | None = None


class ServiceCIDRSpec(Struct):
    """A ServiceCIDR's spec."""

    cidrs: list[str] | None = None


class ServiceCIDR(Head):
    """networking.k8s.io/v1 ServiceCIDR (v1beta1 is alike)."""

    spec: ServiceCIDRSpec | None = None


class ConfigMap(Head):
    """core/v1 ConfigMap."""

    data: dict[str, str] | None = None


class NodeSpec(Struct):
    """A Node's spec."""

    podCIDR: str | None = None  # noqa: N815 - the API's field
    podCIDRs: list[str] | None = None  # noqa: N815
    providerID: str | None = None  # noqa: N815


class NodeAddress(Struct):
    """One of a Node's addresses."""

    type: str
    address: str


class NodeStatus(Struct):
    """A Node's status."""

    addresses: list[NodeAddress] | None = None


class Node(Head):
    """core/v1 Node."""

    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Conditions(Struct):
    """An endpoint's conditions."""

    ready: bool | None = None


class SliceEndpoint(Struct, rename="camel"):
    """An endpoint of an EndpointSlice."""

    addresses: list[str]
    conditions: Conditions | None = None
    node_name: str | None = None


class SlicePort(Struct):
    """A port of an EndpointSlice."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Head):
    """discovery.k8s.io/v1 EndpointSlice."""

    endpoints: list[SliceEndpoint] | None = None
    ports: list[SlicePort] | None = None


# The Gateway API's objects.


class Reference(Struct, rename="camel"):
    """A parentRef of a Route or a ListenerSet."""

    name: str
    group: str | None = None
    kind: str | None = None
    namespace: str | None = None
    section_name: str | None = None
    port: int | None = None


class Expression(Struct):
    """One of a label selector's matchExpressions."""

    key: str
    operator: str
    values: list[str] | None = None


class Selector(Struct, rename="camel"):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class Namespaces(Struct):
    """`allowedRoutes.namespaces` and `allowedListeners.namespaces`."""

    origin: str | None = field(default=None, name="from")
    selector: Selector | None = None


class RouteKind(Struct):
    """One of `allowedRoutes.kinds`."""

    kind: str
    group: str | None = None


class AllowedRoutes(Struct):
    """Which Routes a listener takes."""

    namespaces: Namespaces | None = None
    kinds: list[RouteKind] | None = None


class Listener(Struct, rename="camel"):
    """A listener of a Gateway or of a ListenerSet."""

    name: str
    protocol: str
    port: int = 0
    hostname: str | None = None
    allowed_routes: AllowedRoutes | None = None


class AllowedListeners(Struct):
    """Who may add listeners to a Gateway."""

    namespaces: Namespaces | None = None


class GatewaySpec(Struct, rename="camel"):
    """A Gateway's spec."""

    listeners: list[Listener] | None = None
    allowed_listeners: AllowedListeners | None = None


class GatewayAddress(Struct):
    """One of `status.addresses`."""

    value: str | None = None
    type: str | None = None


class GatewayStatus(Struct):
    """A Gateway's status."""

    addresses: list[GatewayAddress] | None = None


class Gateway(Head):
    """Gateway."""

    spec: GatewaySpec | None = None
    status: GatewayStatus | None = None


class ListenerSetSpec(Struct, rename="camel"):
    """A ListenerSet's spec."""

    parent_ref: Reference
    listeners: list[Listener] | None = None


class ListenerSet(Head):
    """ListenerSet, and XListenerSet of the experimental group."""

    spec: ListenerSetSpec


class Condition(Struct, rename="camel"):
    """A condition of a status."""

    type: str
    status: str
    observed_generation: int | None = None


class RouteParent(Struct, rename="camel"):
    """What one controller says about a Route on one parent."""

    parent_ref: Reference
    conditions: list[Condition] | None = None


class RouteStatus(Struct):
    """A Route's status."""

    parents: list[RouteParent] | None = None


class RouteSpec(Struct, rename="camel"):
    """A Route's spec."""

    parent_refs: list[Reference] | None = None
    hostnames: list[str] | None = None


class Route(Head):
    """HTTPRoute, GRPCRoute or TLSRoute."""

    spec: RouteSpec | None = None
    status: RouteStatus | None = None
