"""The kinds that a cluster may or may not have: the Gateway API's, newer ones, controllers' own. Pure.

For controllers' own kinds, a table says where the hosts are. What needs more than a row (a chain of
references) is not read: DNAT serves it without a hostname.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from nodeagent.errors import quoted
from nodeagent.model import objects as model
from nodeagent.sources.objects import api, decoding
from nodeagent.typed_values import intern

# An unterminated text reaches to the end: its end is not searched again from each quote in it.
_TOKENS = re.compile(r'`[^`]*`?|"[^"\\]*(?:\\.[^"\\]*)*"?|[A-Za-z]+|[!()]', re.DOTALL)
_HOST_MATCHERS = frozenset({"host", "hostheader", "hostsni"})
_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"


def istio_host(text: str) -> tuple[str, ...]:
    """Return the host after the namespace that Istio allows before it (`prod/www.example.com`, `./*`)."""
    host = text.rpartition("/")[2]
    return (host,) if host != "*" else ()


def hosts_in_rule(rule: str) -> tuple[str, ...]:
    """Return the hosts of all Host and HostSNI matchers that are not negated, each once."""
    hosts: dict[str, None] = {}
    matcher, negating = "", False
    within = [("", False)]
    for part in _TOKENS.findall(rule):
        if part == "!":
            negating = not negating
        elif part == "(":
            within.append((matcher, within[-1][1] is not negating))
            matcher, negating = "", False
        elif part == ")":
            if len(within) > 1:
                within.pop()
        elif part[0] in '`"':
            name, negated = within[-1]
            if name in _HOST_MATCHERS and not negated and part[1:].endswith(part[0]) and "**" not in part:
                hosts[part[1:-1]] = None
        else:
            matcher = part.lower()
    hosts.pop("*", None)  # HostSNI(`*`): everything else
    return tuple(hosts)


class ControllerKind(Struct, frozen=True):
    """One kind of a controller's own API that claims hostnames.

    Attributes:
        controller: the name in IngressClasses of the controller that serves it; None if it has none.
        hosts: the paths (see `api.texts_at`) of the texts from which `read` takes hosts.
        status: the path of the entries with `ip` or `hostname` that the controller reports, if it does. Only
            where it is a subresource, which authors of objects can't write.
        only_with: a list that must contain something other than `mesh` (the sidecars, for Istio).
    """

    group: str
    versions: tuple[str, ...]
    controller: str | None
    kind: str
    hosts: tuple[str, ...]
    read: Callable[[str], tuple[str, ...]] = decoding.plain
    status: str = ""
    only_with: str = ""


_OF_THE_MESH = re.compile(r"[^.*]+|[^.]+\.[^.]+\.svc(\..*)?")
"""A Service's name, alone or below the cluster's domain: the mesh's own, and no hostname of a gateway's."""


def decode_controller_route(raw: api.Raw, row: ControllerKind) -> model.ControllerRoute | None:
    """Return an object of a controller's own kind; None for one that does not concern load balancers."""
    document = api.decode(raw, dict[str, Any])
    of = set(api.texts_at(document, row.only_with)) if row.only_with else set[str]()
    if row.only_with and not of - {"mesh"}:
        return None
    metadata = api.decode(document, api.Head).metadata
    problems: list[str] = []
    reported = api.values_at(document, row.status) if row.status else ()
    fields = ("ip", "hostname")
    entries = [api.Point(*(next(api.texts_at(entry, key), None) for key in fields)) for entry in reported]
    named = next(api.texts_at(document, "spec.ingressClassName"), None)
    return model.ControllerRoute(
        ref=decoding.ref_of(row.kind, metadata),
        controller=row.controller,
        created=decoding.created_of(metadata),
        class_name=intern(named and decoding.cut(named)),
        hosts=decoding.some_hosts(
            (
                host
                for text in api.texts_at(document, *row.hosts)
                for host in row.read(text)
                # Next to a gateway, an object may be the mesh's, too, which calls Services by such names.
                if not ("mesh" in of and _OF_THE_MESH.fullmatch(host))
            ),
            problems,
        ),
        points=decoding.points_of(entries, row.status, problems),
        annotations=decoding.deciding_annotations(metadata),
        problems=decoding.some_problems(problems),
    )


def decode_ingress_class(raw: api.Raw) -> model.IngressClass:
    """Return the IngressClass."""
    ingress_class = api.decode(raw, api.IngressClass)
    api.check_size(raw, ingress_class.metadata.name, ingress_class.spec)
    return model.IngressClass(
        ingress_class.metadata.name,
        ingress_class.spec.controller if ingress_class.spec else None,
        (ingress_class.metadata.annotations or {}).get(_DEFAULT_CLASS) == "true",
    )


def decode_service_range(raw: api.Raw) -> model.ServiceRange:
    """Return the ServiceCIDR. Raises DecodingError also for a range that can't be read."""
    service_cidr = api.decode(raw, api.ServiceCIDR)
    api.check_size(raw, service_cidr.spec)
    texts = (service_cidr.spec.cidrs if service_cidr.spec else None) or []
    try:
        return model.ServiceRange(
            decoding.ref_of("ServiceCIDR", service_cidr.metadata).name, tuple(map(decoding.network_of, texts))
        )
    except ValueError as error:
        raise api.DecodingError(f"ServiceCIDR {service_cidr.metadata.name}: spec.cidrs: {error}") from error


def decode_namespace(raw: api.Raw) -> model.Namespace:
    """Return the Namespace with all of its labels: any selector may use any."""
    metadata = api.decode(raw, api.Head).metadata
    api.check_size(raw, metadata.labels)
    return model.Namespace(decoding.ref_of("Namespace", metadata).name, metadata.labels or {})


def decode_gateway(raw: api.Raw) -> model.Gateway:
    """Return the Gateway. Raises DecodingError also for a selector that can't be understood."""
    gateway = api.decode(raw, api.Gateway)
    api.check_size(raw, gateway.spec, gateway.status)
    spec = gateway.spec or api.GatewaySpec()
    problems: list[str] = []
    allowed = spec.allowed_listeners.namespaces if spec.allowed_listeners else None
    reported = (gateway.status.addresses if gateway.status else None) or ()
    # A controller's own types of addresses mean nothing to others.
    fields = {None: "ip", "IPAddress": "ip", "Hostname": "hostname"}
    points = [api.Point(**{fields[entry.type]: entry.value}) for entry in reported if entry.type in fields]
    return model.Gateway(
        ref=decoding.ref_of("Gateway", gateway.metadata),
        created=decoding.created_of(gateway.metadata),
        listeners=tuple(map(_listener, spec.listeners or ())),
        points=decoding.points_of(points, "status.addresses", problems),
        allowed_listeners=_allowed(allowed, "None"),
        annotations=decoding.deciding_annotations(gateway.metadata),
        problems=decoding.some_problems(problems),
    )


def decode_listener_set(raw: api.Raw) -> model.ListenerSet:
    """Return the ListenerSet."""
    listener_set = api.decode(raw, api.ListenerSet)
    api.check_size(raw, listener_set.spec)
    ref = decoding.ref_of("ListenerSet", listener_set.metadata)
    return model.ListenerSet(
        ref=ref,
        parent=_parent(listener_set.spec.parent_ref, ref.namespace),
        listeners=tuple(map(_listener, listener_set.spec.listeners or ())),
        annotations=decoding.deciding_annotations(listener_set.metadata),
    )


def decode_route(raw: api.Raw, kind: str) -> model.Route:
    """Return the HTTPRoute, GRPCRoute or TLSRoute."""
    route = api.decode(raw, api.Route)
    spec = route.spec or api.RouteSpec()
    api.check_size(raw, spec.parent_refs, route.status)
    ref = decoding.ref_of(kind, route.metadata)
    parents = route.status.parents if route.status else None
    said = _said(parents or (), ref.namespace, route.metadata.generation)
    listed = tuple(_parent(parent, ref.namespace) for parent in spec.parent_refs or ())
    # GEP-3793: the Gateways that took it without being named are in its status alone.
    by_default = spec.use_default_gateways == "All"
    accepted = (parent for parent in said if by_default and "True" in said[parent] and parent not in listed)
    problems: list[str] = []
    return model.Route(
        ref=ref,
        created=decoding.created_of(route.metadata),
        hostnames=decoding.some_hosts(spec.hostnames or (), problems),
        parents=(*listed, *accepted),
        declined=tuple(parent for parent, statuses in said.items() if statuses == {"False"}),
        annotations=decoding.deciding_annotations(route.metadata),
        problems=decoding.some_problems(problems),
    )


def _said(
    parents: Iterable[api.RouteParent], namespace: str, generation: int | None
) -> Mapping[model.ParentRef, set[str]]:
    """Return whether each parent's controllers accept the Route as it is now: the statuses of `Accepted`."""
    statuses = defaultdict[model.ParentRef, set[str]](set)
    for parent in parents:
        for condition in parent.conditions or ():
            observed = condition.observed_generation
            if condition.type == "Accepted" and (not observed or not generation or observed >= generation):
                statuses[_parent(parent.parent_ref, namespace)].add(condition.status)
    return statuses


def _parent(reference: api.Reference, namespace: str) -> model.ParentRef:
    # Thousands of Routes have the same parent.
    return intern(
        model.ParentRef(
            model.GATEWAY_API if reference.group is None else reference.group,
            reference.kind or "Gateway",
            reference.namespace or namespace,
            reference.name,
            reference.section_name,
            reference.port,
        )
    )


def _listener(listener: api.Listener) -> model.GatewayListener:
    allowed = listener.allowed_routes or api.Allowed()
    return model.GatewayListener(
        name=listener.name,
        port=listener.port,
        protocol=listener.protocol,
        hostname=listener.hostname or None,
        kinds=tuple(
            (model.GATEWAY_API if kind.group is None else kind.group, kind.kind)
            for kind in allowed.kinds or ()
        ),
        namespaces=_allowed(allowed.namespaces, "Same"),
    )


def _allowed(namespaces: api.Namespaces | None, default: str) -> model.AllowedNamespaces:
    match (namespaces.origin if namespaces else None) or default:
        case "All" | "Same" | "None" as origin:
            return model.AllowedNamespaces(origin)
        case "Selector":
            selector = namespaces.selector if namespaces else None
            return model.AllowedNamespaces("Selector", _rules(selector or api.Selector()))
        case unknown:
            field = f"namespaces.from: {quoted(unknown)}"
            raise api.DecodingError(f"{field} is not one of All, Same, Selector, None")


_MOST_RULES = 64


def _rules(selector: api.Selector) -> tuple[model.LabelRule, ...]:
    expressions = selector.match_expressions or ()
    values = sum(len(expression.values or ()) for expression in expressions)
    if len(selector.match_labels or ()) + len(expressions) + values > _MOST_RULES:
        # One that is cut off would mean something else.
        most = f"{_MOST_RULES} labels, expressions and values"
        raise api.DecodingError(f"a label selector has more than {most}")
    rules = [model.LabelRule(key, "In", (value,)) for key, value in (selector.match_labels or {}).items()]
    for requirement in expressions:
        match requirement.operator:
            case "In" | "NotIn" | "Exists" | "DoesNotExist" as operator:
                rules.append(model.LabelRule(requirement.key, operator, tuple(requirement.values or ())))
            case unknown:
                raise api.DecodingError(f"matchExpressions: {quoted(unknown)} is not an operator")
    return tuple(rules)


_IRREGULAR = {"HTTPProxy": "httpproxies", "ApisixTls": "apisixtlses"}
"""The plurals, by kind, that are not the kind's name with an s."""


class OptionalKind(Struct, frozen=True):
    """One kind: served by a CustomResourceDefinition, or by Kubernetes since some version.

    The fields are the same in all of the `versions`, of which the first is the best. `decode` returns None
    for an object that nodeagent does not use, and raises DecodingError for one that can't be read.
    """

    group: str
    versions: tuple[str, ...]
    kind: str
    decode: Callable[[api.Raw], object | None]

    @property
    def plural(self) -> str:
        """The name in paths."""
        return _IRREGULAR.get(self.kind) or f"{self.kind.lower()}s"

    @property
    def name(self) -> str:
        """The name in status and metrics, and for `kubectl get`: `httproutes.gateway...`."""
        return f"{self.plural}.{self.group}"


def _route(kind: str, *versions: str) -> OptionalKind:
    return OptionalKind(model.GATEWAY_API, versions, kind, partial(decode_route, kind=kind))


_TRAEFIK = ("traefik.io", ("v1alpha1",), "traefik.io/ingress-controller")
_ISTIO = ("networking.istio.io", ("v1", "v1beta1", "v1alpha3"), "istio.io/ingress-controller")
_CONTOUR = ("projectcontour.io", ("v1",), "projectcontour.io/ingress-controller")
_F5 = ("k8s.nginx.org", ("v1",), "nginx.org/ingress-controller")
_OPENSHIFT = ("route.openshift.io", ("v1",), "openshift.io/ingress-to-route")
_APISIX = ("apisix.apache.org", ("v2",), "apisix.apache.org/apisix-ingress-controller")
_EMISSARY = ("getambassador.io", ("v3alpha1",), "getambassador.io/ingress-controller")
_SKIPPER = ("zalando.org", ("v1",), None)
_GLOO = ("gateway.solo.io", ("v1",), None)

CONTROLLER_KINDS: tuple[ControllerKind, ...] = (
    ControllerKind(*_TRAEFIK, "IngressRoute", ("spec.routes[].match",), hosts_in_rule),
    ControllerKind(*_TRAEFIK, "IngressRouteTCP", ("spec.routes[].match",), hosts_in_rule),
    ControllerKind(*_ISTIO, "Gateway", ("spec.servers[].hosts[]",), istio_host),
    ControllerKind(*_ISTIO, "VirtualService", ("spec.hosts[]",), istio_host, only_with="spec.gateways[]"),
    # contour: apis/projectcontour/v1/httpproxy.go (VirtualHost, HTTPProxyStatus).
    ControllerKind(
        *_CONTOUR, "HTTPProxy", ("spec.virtualhost.fqdn",), status="status.loadBalancer.ingress[]"
    ),
    # F5's kubernetes-ingress: pkg/apis/configuration/v1/types.go (VirtualServerSpec, VirtualServerStatus; the
    # status of a TransportServer has no address).
    ControllerKind(*_F5, "VirtualServer", ("spec.host",), status="status.externalEndpoints[]"),
    ControllerKind(*_F5, "TransportServer", ("spec.host",)),
    # openshift/api: route/v1/types.go (RouteSpec; its status names the router, not the load balancer).
    ControllerKind(*_OPENSHIFT, "Route", ("spec.host", "status.ingress[].host")),
    # apisix-ingress-controller: api/v2/apisixroute_types.go, apisixtls_types.go.
    ControllerKind(*_APISIX, "ApisixRoute", ("spec.http[].match.hosts[]", "spec.stream[].match.host")),
    ControllerKind(*_APISIX, "ApisixTls", ("spec.hosts[]",)),
    # emissary: pkg/api/getambassador.io/v3alpha1 (HostSpec, MappingSpec, TCPMappingSpec; globs are not read).
    ControllerKind(*_EMISSARY, "Host", ("spec.hostname",)),
    ControllerKind(*_EMISSARY, "Mapping", ("spec.hostname", "spec.host")),
    ControllerKind(*_EMISSARY, "TCPMapping", ("spec.host",)),
    # skipper: dataclients/kubernetes/deploy/apply/routegroups_crd.yaml.
    ControllerKind(
        *_SKIPPER,
        "RouteGroup",
        ("spec.hosts[]", "spec.tls[].hosts[]"),
        status="status.loadBalancer.routegroup[]",
    ),
    # gloo: projects/gateway/api/v1/virtual_service.proto (VirtualHost.domains).
    ControllerKind(*_GLOO, "VirtualService", ("spec.virtualHost.domains[]",)),
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

GATEWAYS = OptionalKind(model.GATEWAY_API, ("v1", "v1beta1"), "Gateway", decode_gateway)
SERVICE_RANGES = OptionalKind("networking.k8s.io", ("v1", "v1beta1"), "ServiceCIDR", decode_service_range)

OPTIONAL_KINDS: tuple[OptionalKind, ...] = (
    GATEWAYS,
    OptionalKind(model.GATEWAY_API, ("v1",), "ListenerSet", decode_listener_set),
    _route("HTTPRoute", "v1", "v1beta1"),
    _route("GRPCRoute", "v1", "v1alpha2"),
    _route("TLSRoute", "v1", "v1alpha3", "v1alpha2"),
    SERVICE_RANGES,
    *(
        OptionalKind(row.group, row.versions, row.kind, partial(decode_controller_route, row=row))
        for row in CONTROLLER_KINDS
    ),
)
