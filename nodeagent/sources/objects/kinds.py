"""The kinds that a cluster may or may not have: the Gateway API's, newer ones, controllers' own. Pure.

Each is decoded into the model's values. For controllers' own kinds, a table says where the hosts are. What
needs more than a row (a host by regular expression, a chain of references) is not read: DNAT serves it
without a hostname.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from msgspec import Struct

from nodeagent.errors import quoted
from nodeagent.interning import intern
from nodeagent.model.objects import (
    GATEWAY_API,
    AllowedNamespaces,
    ControllerRoute,
    Gateway,
    GatewayListener,
    IngressClass,
    LabelRule,
    ListenerSet,
    LoadBalancerPoint,
    Namespace,
    ParentRef,
    Route,
    ServiceRange,
)
from nodeagent.sources.objects import api
from nodeagent.sources.objects.decoding import (
    DecodingError,
    Raw,
    address_of,
    check_size,
    created_of,
    deciding_annotations,
    decode,
    network_of,
    ref_of,
    some_hosts,
    some_problems,
)

# An unterminated text reaches to the end: its end is not searched again from each quote in it.
_TOKENS = re.compile(r'`[^`]*`?|"[^"\\]*(?:\\.[^"\\]*)*"?|[A-Za-z]+|[!()]', re.DOTALL)
_HOST_MATCHERS = frozenset({"host", "hostheader", "hostsni"})


def hosts_in_rule(rule: str) -> tuple[str, ...]:
    """Return the hosts of all Host and HostSNI matchers that are not negated, each once."""
    found: dict[str, None] = {}
    matcher = ""
    negating = False
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
            if name in _HOST_MATCHERS and not negated and part[1:].endswith(part[0]):
                found[part[1:-1]] = None
        else:
            matcher = part.lower()
    found.pop("*", None)  # HostSNI(`*`): everything else
    return tuple(found)


_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"

HostReader = Callable[[str], tuple[str, ...]]


def _istio_host(text: str) -> tuple[str, ...]:
    """Return the host after the namespace that Istio allows before it (`prod/www.example.com`, `./*`)."""
    host = text.rpartition("/")[2]
    return (host,) if host != "*" else ()


def decode_controller_route(  # noqa: PLR0913 - where the hosts of a kind are
    raw: Raw,
    *,
    kind: str,
    controller: str,
    hosts: str,
    read: HostReader,
    only_with: str = "",
) -> ControllerRoute | None:
    """Return an object of a controller's own kind; None for one that does not concern load balancers.

    Args:
        raw: the object.
        kind: its kind.
        controller: the name in IngressClasses of the controller that serves it.
        hosts: where the texts with hosts are; `[]` is every item of a list.
        read: turns one such text into its hosts.
        only_with: a list that must contain something other than `mesh` (the sidecars, for Istio).

    Raises:
        DecodingError: it can't be read.
    """
    document = decode(raw, dict[str, Any])
    if only_with and not any(text != "mesh" for text in _texts(document, only_with)):
        return None
    metadata = decode(document, api.Head).metadata
    problems: list[str] = []
    found = some_hosts((host for text in _texts(document, hosts) for host in read(text)), problems)
    return ControllerRoute(
        ref=ref_of(kind, metadata),
        controller=controller,
        created=created_of(metadata),
        hosts=found,
        annotations=deciding_annotations(metadata),
        problems=some_problems(problems),
    )


def _texts(value: object, path: str) -> Iterator[str]:
    """Yield the texts at a path; missing values and those of another type yield nothing."""
    if not path:
        if isinstance(value, str):
            yield value
        return
    if path.startswith("[]"):
        for item in value if isinstance(value, list) else ():
            yield from _texts(item, path[2:].removeprefix("."))
        return
    cut = min((at for at in (path.find("."), path.find("[]")) if at >= 0), default=len(path))
    if isinstance(value, dict):
        yield from _texts(value.get(path[:cut]), path[cut:].removeprefix("."))


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


def _traefik(kind: str) -> OptionalKind:
    read = partial(
        decode_controller_route,
        kind=kind,
        controller="traefik.io/ingress-controller",
        hosts="spec.routes[].match",
        read=hosts_in_rule,
    )
    return OptionalKind("traefik.io", ("v1alpha1",), f"{kind.lower()}s", kind, read)


def _istio(kind: str, hosts: str, only_with: str = "") -> OptionalKind:
    read = partial(
        decode_controller_route,
        kind=kind,
        controller="istio.io/ingress-controller",
        hosts=hosts,
        read=_istio_host,
        only_with=only_with,
    )
    versions = ("v1", "v1beta1", "v1alpha3")
    return OptionalKind("networking.istio.io", versions, f"{kind.lower()}s", kind, read)


GATEWAYS = OptionalKind(GATEWAY_API, ("v1", "v1beta1"), "gateways", "Gateway", decode_gateway)

OPTIONAL_KINDS: tuple[OptionalKind, ...] = (
    GATEWAYS,
    OptionalKind(GATEWAY_API, ("v1",), "listenersets", "ListenerSet", decode_listener_set),
    _route("HTTPRoute", "v1", "v1beta1"),
    _route("GRPCRoute", "v1", "v1alpha2"),
    _route("TLSRoute", "v1", "v1alpha3", "v1alpha2"),
    OptionalKind("networking.k8s.io", ("v1", "v1beta1"), "servicecidrs", "ServiceCIDR", decode_service_range),
    _traefik("IngressRoute"),
    _traefik("IngressRouteTCP"),
    _istio("Gateway", "spec.servers[].hosts[]"),
    _istio("VirtualService", "spec.hosts[]", only_with="spec.gateways[]"),
)
