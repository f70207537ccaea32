"""The Gateway API's objects as they come: of each, the few fields that are used, under the API's own names.

They are the same in all versions that are read (v1, v1beta1, v1alpha2, v1alpha3). What the API server would
fill in by its defaults may be absent in manifests on disk.
"""

from msgspec import Struct, field

from nodeagent.sources.api_objects import Head


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
    """What one controller says of a Route on one parent."""

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
