"""The kinds that a cluster may or may not have, controllers' own among them; and all values as one Snapshot.

For controllers' own kinds, a table says where the hosts are. What needs more than a row (a host by regular
expression, a chain of references) is not read: DNAT serves it without a hostname.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from nodeagent.errors import one_line
from nodeagent.model.objects import (
    GATEWAY_API,
    ConfigMap,
    ControllerRoute,
    Gateway,
    Ingress,
    IngressClass,
    ListenerSet,
    Namespace,
    Node,
    RelayService,
    Route,
    Service,
    ServiceRange,
    Snapshot,
    Unreadable,
)
from nodeagent.sources.objects import api
from nodeagent.sources.objects.decoding import (
    DecodingError,
    created_of,
    deciding_annotations,
    decode,
    decode_service_range,
    ref_of,
    some_hosts,
)
from nodeagent.sources.objects.gateway_api import (
    EXPERIMENTAL_GROUP,
    decode_experimental_listener_set,
    decode_gateway,
    decode_grpc_route,
    decode_http_route,
    decode_listener_set,
    decode_tls_route,
)
from nodeagent.typed_values import from_json

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


# Controllers' own APIs.


HostReader = Callable[[str], tuple[str, ...]]


def _istio_host(text: str) -> tuple[str, ...]:
    """Return the host after the namespace that Istio allows before it (`prod/www.example.com`, `./*`)."""
    host = text.rpartition("/")[2]
    return (host,) if host != "*" else ()


class ControllerKind(Struct, frozen=True):
    """One kind.

    Attributes:
        group: its API group.
        versions: those that are read, the best first; the fields are the same in all of them.
        plural: its name in paths.
        kind: its name in objects.
        controller: the name in IngressClasses of the controller that serves it.
        hosts: where the texts with hosts are; `[]` is every item of a list.
        read: turns one such text into its hosts.
        only_with: a list that must contain something other than `mesh` (the sidecars, for Istio).
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    controller: str
    hosts: str
    read: HostReader
    only_with: str = ""

    def decode(self, raw: bytes | dict[str, Any]) -> ControllerRoute | None:
        """Return the object; None for one that does not concern load balancers. Raises DecodingError."""
        document = _document(raw)
        if self.only_with and not any(text != "mesh" for text in _texts(document, self.only_with)):
            return None
        metadata = decode(document, api.Head).metadata
        problems: list[str] = []
        hosts = some_hosts(
            (host for text in _texts(document, self.hosts) for host in self.read(text)), problems
        )
        return ControllerRoute(
            ref=ref_of(self.kind, metadata),
            controller=self.controller,
            created=created_of(metadata),
            hosts=hosts,
            annotations=deciding_annotations(metadata),
            problems=tuple(problems),
        )


_TRAEFIK = "traefik.io/ingress-controller"
_ISTIO = "istio.io/ingress-controller"
_ISTIO_VERSIONS = ("v1", "v1beta1", "v1alpha3")

CONTROLLER_KINDS: tuple[ControllerKind, ...] = (
    *(
        ControllerKind(
            group, ("v1alpha1",), f"{kind.lower()}s", kind, _TRAEFIK, "spec.routes[].match", hosts_in_rule
        )
        # traefik.containo.us is the group of Traefik before 2.10, which continued to serve it until 3.0.
        for group in ("traefik.io", "traefik.containo.us")
        for kind in ("IngressRoute", "IngressRouteTCP")
    ),
    ControllerKind(
        "networking.istio.io",
        _ISTIO_VERSIONS,
        "gateways",
        "Gateway",
        _ISTIO,
        "spec.servers[].hosts[]",
        _istio_host,
    ),
    ControllerKind(
        "networking.istio.io",
        _ISTIO_VERSIONS,
        "virtualservices",
        "VirtualService",
        _ISTIO,
        "spec.hosts[]",
        _istio_host,
        only_with="spec.gateways[]",
    ),
)


def _document(raw: bytes | dict[str, Any]) -> dict[str, Any]:
    if isinstance(raw, dict):
        return raw
    try:
        return from_json(raw, dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodingError(one_line(error)) from error


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


# All optional kinds.


class OptionalKind(Struct, frozen=True):
    """One kind: served by a CustomResourceDefinition, or by Kubernetes since some version.

    Attributes:
        group: its API group.
        versions: those that can be read, the best first.
        plural: its name in paths.
        kind: its name in objects.
        decode: one object to its value; None for one that nodeagent does not use; raises DecodingError.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    decode: Callable[[bytes | dict[str, Any]], object | None]

    @property
    def name(self) -> str:
        """The name in status and metrics, and for `kubectl get`: `httproutes.gateway...`."""
        return f"{self.plural}.{self.group}"


GATEWAYS = OptionalKind(GATEWAY_API, ("v1", "v1beta1"), "gateways", "Gateway", decode_gateway)

OPTIONAL_KINDS: tuple[OptionalKind, ...] = (
    GATEWAYS,
    OptionalKind(GATEWAY_API, ("v1",), "listenersets", "ListenerSet", decode_listener_set),
    OptionalKind(GATEWAY_API, ("v1", "v1beta1"), "httproutes", "HTTPRoute", decode_http_route),
    OptionalKind(GATEWAY_API, ("v1", "v1alpha2"), "grpcroutes", "GRPCRoute", decode_grpc_route),
    OptionalKind(GATEWAY_API, ("v1", "v1alpha3", "v1alpha2"), "tlsroutes", "TLSRoute", decode_tls_route),
    OptionalKind(
        EXPERIMENTAL_GROUP,
        ("v1alpha1",),
        "xlistenersets",
        "XListenerSet",
        decode_experimental_listener_set,
    ),
    OptionalKind("networking.k8s.io", ("v1", "v1beta1"), "servicecidrs", "ServiceCIDR", decode_service_range),
    *(OptionalKind(row.group, row.versions, row.plural, row.kind, row.decode) for row in CONTROLLER_KINDS),
)


# From decoded values of all kinds to one Snapshot. Pure.


_Value = TypeVar("_Value")


def assembled(
    collections: Iterable[tuple[object, ...]],
    unreadable: Iterable[Unreadable] = (),
    not_covered: Iterable[str] = (),
) -> Snapshot:
    """Return the Snapshot of collections, each of one kind; the only collection of a kind is used as it is.

    EndpointSlices of an existing relay come as tuples of endpoints.
    """
    by_type: dict[type, list[tuple[object, ...]]] = {}
    for values in collections:
        if values:
            by_type.setdefault(type(values[0]), []).append(values)

    def of(kind: type[_Value]) -> tuple[_Value, ...]:
        found = cast("list[tuple[_Value, ...]]", by_type.get(kind, []))
        # Sorted as a whole, if each is.
        found.sort(key=lambda values: getattr(getattr(values[0], "ref", None), "kind", ""))
        return found[0] if len(found) == 1 else tuple(chain.from_iterable(found))

    return Snapshot(
        services=of(Service),
        ingresses=of(Ingress),
        ingress_classes=of(IngressClass),
        gateways=of(Gateway),
        listener_sets=of(ListenerSet),
        routes=of(Route),
        controller_routes=of(ControllerRoute),
        namespaces=of(Namespace),
        service_ranges=of(ServiceRange),
        node=next(iter(of(Node)), None),
        config_maps=of(ConfigMap),
        relay_service=next(iter(of(RelayService)), None),
        # While an endpoint moves from one slice to another, it may be in both (KEP-752).
        relay_endpoints=tuple(dict.fromkeys(endpoint for found in of(tuple) for endpoint in found)),
        unreadable=tuple(unreadable),
        not_covered=tuple(not_covered),
    )
