"""The kinds that a cluster may or may not have: the Gateway API's, newer ones, controllers' own. Pure.

Each is decoded into the model's values. For controllers' own kinds, a table says where the hosts are. What
needs more than a row (a host by regular expression, a chain of references) is not read: DNAT serves it
without a hostname.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from nodeagent.errors import quoted
from nodeagent.model.objects import (
    GATEWAY_API,
    AllowedNamespaces,
    ControllerRoute,
    Gateway,
    GatewayListener,
    IngressClass,
    LabelRule,
    ListenerSet,
    Namespace,
    ParentRef,
    Route,
    ServiceRange,
)
from nodeagent.sources.objects import api
from nodeagent.sources.objects.decoding import (
    DecodingError,
    Raw,
    check_size,
    created_of,
    cut,
    deciding_annotations,
    decode,
    network_of,
    points_of,
    ref_of,
    some_problems,
)
from nodeagent.sources.objects.hosts import (
    hosts_in_rule,
    istio_host,
    plain,
    some_hosts,
    texts_at,
    values_at,
)
from nodeagent.typed_values import intern

_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"


class ControllerKind(Struct, frozen=True):
    """One kind of a controller's own API that claims hostnames.

    Attributes:
        group: its API group.
        versions: those that can be read, the best first; the fields are the same in all of them.
        kind: its name in objects.
        hosts: the paths of the texts with hosts; `[]` is every item of a list.
        controller: the name in IngressClasses of the controller that serves it; None if it has none.
        read: turns one such text into its hosts.
        status: the path of the entries with `ip` or `hostname` that the controller reports; empty if it
            reports none. Only where it is a subresource, which authors of objects can't write.
        only_with: a list that must contain something other than `mesh` (the sidecars, for Istio).
        plural: its name in paths, if that is not its kind's with an s.
    """

    group: str
    versions: tuple[str, ...]
    kind: str
    hosts: tuple[str, ...]
    controller: str | None = None
    read: Callable[[str], tuple[str, ...]] = plain
    status: str = ""
    only_with: str = ""
    plural: str = ""


_OF_THE_MESH = re.compile(r"[^.*]+|[^.]+\.[^.]+\.svc(\..*)?")
"""A Service's name, alone or below the cluster's domain: the mesh's own, and no hostname of a gateway's."""
_CLASS = "spec.ingressClassName"
"""Where all of them that have a class have it."""


def decode_controller_route(raw: Raw, row: ControllerKind) -> ControllerRoute | None:
    """Return an object of a controller's own kind; None for one that does not concern load balancers.

    Raises:
        DecodingError: it can't be read.
    """
    document = decode(raw, dict[str, Any])
    of = set(texts_at(document, row.only_with)) if row.only_with else set[str]()
    if row.only_with and not of - {"mesh"}:
        return None
    metadata = decode(document, api.Head).metadata
    problems: list[str] = []
    reported = values_at(document, row.status) if row.status else ()
    entries = [api.Point(*(next(texts_at(one, key), None) for key in ("ip", "hostname"))) for one in reported]
    named = next(texts_at(document, _CLASS), None)
    return ControllerRoute(
        ref=ref_of(row.kind, metadata),
        controller=row.controller,
        created=created_of(metadata),
        class_name=intern(named and cut(named)),
        hosts=some_hosts(
            (
                host
                for text in texts_at(document, *row.hosts)
                for host in row.read(text)
                # Next to a gateway, an object may be the mesh's, too, which calls Services by such names.
                if not ("mesh" in of and _OF_THE_MESH.fullmatch(host))
            ),
            problems,
        ),
        points=points_of(entries, row.status, problems),
        annotations=deciding_annotations(metadata),
        problems=some_problems(problems),
    )


def decode_ingress_class(raw: Raw) -> IngressClass:
    """Return the IngressClass. Raises DecodingError."""
    found = decode(raw, api.IngressClass)
    check_size(raw, found.metadata.name, found.spec)
    return IngressClass(
        found.metadata.name,
        found.spec.controller if found.spec else None,
        (found.metadata.annotations or {}).get(_DEFAULT_CLASS) == "true",
    )


def decode_service_range(raw: Raw) -> ServiceRange:
    """Return the ServiceCIDR. Raises DecodingError, also for a range that can't be read."""
    found = decode(raw, api.ServiceCIDR)
    check_size(raw, found.spec)
    texts = (found.spec.cidrs if found.spec else None) or []
    try:
        return ServiceRange(ref_of("ServiceCIDR", found.metadata).name, tuple(map(network_of, texts)))
    except ValueError as error:
        raise DecodingError(f"ServiceCIDR {found.metadata.name}: spec.cidrs: {error}") from error


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
    reported = (found.status.addresses if found.status else None) or ()
    # A controller's own types of addresses mean nothing to others.
    fields = {None: "ip", "IPAddress": "ip", "Hostname": "hostname"}
    points = [api.Point(**{fields[one.type]: one.value}) for one in reported if one.type in fields]
    return Gateway(
        ref=ref_of("Gateway", found.metadata),
        created=created_of(found.metadata),
        listeners=tuple(map(_listener, spec.listeners or ())),
        points=points_of(points, "status.addresses", problems),
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
    return intern(
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


class OptionalKind(Struct, frozen=True):
    """One kind: served by a CustomResourceDefinition, or by Kubernetes since some version.

    Attributes:
        group: its API group.
        versions: those that can be read, the best first; the fields are the same in all of them.
        plural: its name in paths.
        kind: its name in objects.
        decode: one object to its value; None for one that nodeagent does not use; raises DecodingError.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    decode: Callable[[Raw], object | None]

    @property
    def name(self) -> str:
        """The name in status and metrics, and for `kubectl get`: `httproutes.gateway...`."""
        return f"{self.plural}.{self.group}"


def _route(kind: str, *versions: str) -> OptionalKind:
    return OptionalKind(GATEWAY_API, versions, f"{kind.lower()}s", kind, partial(decode_route, kind=kind))


_TRAEFIK = ("traefik.io", ("v1alpha1",))
_TRAEFIK_RULES = ("spec.routes[].match",)
_ISTIO = ("networking.istio.io", ("v1", "v1beta1", "v1alpha3"))
_F5 = ("k8s.nginx.org", ("v1",))
_APISIX = ("apisix.apache.org", ("v2",))
_EMISSARY = ("getambassador.io", ("v3alpha1",))
_BY_TRAEFIK = "traefik.io/ingress-controller"
_BY_ISTIO = "istio.io/ingress-controller"
_BY_F5 = "nginx.org/ingress-controller"
_BY_APISIX = "apisix.apache.org/apisix-ingress-controller"
_BY_EMISSARY = "getambassador.io/ingress-controller"

CONTROLLER_KINDS: tuple[ControllerKind, ...] = (
    ControllerKind(*_TRAEFIK, "IngressRoute", _TRAEFIK_RULES, _BY_TRAEFIK, hosts_in_rule),
    ControllerKind(*_TRAEFIK, "IngressRouteTCP", _TRAEFIK_RULES, _BY_TRAEFIK, hosts_in_rule),
    ControllerKind(*_ISTIO, "Gateway", ("spec.servers[].hosts[]",), _BY_ISTIO, istio_host),
    ControllerKind(
        *_ISTIO, "VirtualService", ("spec.hosts[]",), _BY_ISTIO, istio_host, only_with="spec.gateways[]"
    ),
    # contour: apis/projectcontour/v1/httpproxy.go (VirtualHost, HTTPProxyStatus).
    ControllerKind(
        "projectcontour.io",
        ("v1",),
        "HTTPProxy",
        ("spec.virtualhost.fqdn",),
        "projectcontour.io/ingress-controller",
        status="status.loadBalancer.ingress[]",
        plural="httpproxies",
    ),
    # F5's kubernetes-ingress: pkg/apis/configuration/v1/types.go (VirtualServerSpec, VirtualServerStatus; the
    # status of a TransportServer has no address).
    ControllerKind(*_F5, "VirtualServer", ("spec.host",), _BY_F5, status="status.externalEndpoints[]"),
    ControllerKind(*_F5, "TransportServer", ("spec.host",), _BY_F5),
    # openshift/api: route/v1/types.go (RouteSpec; its status names the router, not the load balancer).
    ControllerKind("route.openshift.io", ("v1",), "Route", ("spec.host",), "openshift.io/ingress-to-route"),
    # apisix-ingress-controller: api/v2/apisixroute_types.go, apisixtls_types.go.
    ControllerKind(
        *_APISIX, "ApisixRoute", ("spec.http[].match.hosts[]", "spec.stream[].match.host"), _BY_APISIX
    ),
    ControllerKind(*_APISIX, "ApisixTls", ("spec.hosts[]",), _BY_APISIX, plural="apisixtlses"),
    # emissary: pkg/api/getambassador.io/v3alpha1 (HostSpec, MappingSpec, TCPMappingSpec; globs are not read).
    ControllerKind(*_EMISSARY, "Host", ("spec.hostname",), _BY_EMISSARY),
    ControllerKind(*_EMISSARY, "Mapping", ("spec.hostname",), _BY_EMISSARY),
    ControllerKind(*_EMISSARY, "TCPMapping", ("spec.host",), _BY_EMISSARY),
    # skipper: dataclients/kubernetes/deploy/apply/routegroups_crd.yaml.
    ControllerKind(
        "zalando.org",
        ("v1",),
        "RouteGroup",
        ("spec.hosts[]", "spec.tls[].hosts[]"),
        status="status.loadBalancer.routegroup[]",
    ),
    # gloo: projects/gateway/api/v1/virtual_service.proto (VirtualHost.domains).
    ControllerKind("gateway.solo.io", ("v1",), "VirtualService", ("spec.virtualHost.domains[]",)),
)

UNREAD_KINDS: Mapping[str, tuple[str, ...]] = {
    "ako.vmware.com": ("hostrules",),
    "cis.f5.com": ("transportservers", "virtualservers"),
    "configuration.konghq.com": ("tcpingresses",),
    "gateway.networking.x-k8s.io": ("xlistenersets",),
    "serving.knative.dev": ("domainmappings",),
    "traefik.containo.us": ("ingressroutes", "ingressroutetcps"),
}
"""Kinds that claim hostnames and are not read, by group; the doctor names those that are served."""

GATEWAYS = OptionalKind(GATEWAY_API, ("v1", "v1beta1"), "gateways", "Gateway", decode_gateway)
SERVICE_RANGES = OptionalKind(
    "networking.k8s.io", ("v1", "v1beta1"), "servicecidrs", "ServiceCIDR", decode_service_range
)

OPTIONAL_KINDS: tuple[OptionalKind, ...] = (
    GATEWAYS,
    OptionalKind(GATEWAY_API, ("v1",), "listenersets", "ListenerSet", decode_listener_set),
    _route("HTTPRoute", "v1", "v1beta1"),
    _route("GRPCRoute", "v1", "v1alpha2"),
    _route("TLSRoute", "v1", "v1alpha3", "v1alpha2"),
    SERVICE_RANGES,
    *(
        OptionalKind(
            row.group,
            row.versions,
            row.plural or f"{row.kind.lower()}s",
            row.kind,
            partial(decode_controller_route, row=row),
        )
        for row in CONTROLLER_KINDS
    ),
)
