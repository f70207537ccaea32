"""The kinds that a cluster may or may not have, controllers' own among them; and all values as one Snapshot.

For controllers' own kinds, a table says where the hosts are. What needs more than a row (a host by regular
expression, a chain of references) is not read: DNAT serves it without a hostname.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast

from msgspec import Struct

from nodeagent.model.objects import (
    GATEWAY_API,
    ControllerRoute,
    Gateway,
    Ingress,
    IngressClass,
    ListenerSet,
    Namespace,
    Node,
    NodeAddresses,
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
    check_size,
    created_of,
    deciding_annotations,
    decode,
    network_of,
    ref_of,
    some_hosts,
    some_problems,
)
from nodeagent.sources.objects.gateway_api import (
    decode_gateway,
    decode_listener_set,
    decode_route,
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
    raw: bytes | dict[str, Any],
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


def decode_ingress_class(raw: bytes | dict[str, Any]) -> IngressClass:
    """Return the IngressClass. Raises DecodingError."""
    found = decode(raw, api.IngressClass)
    check_size(raw, found.metadata.name, found.spec)
    return IngressClass(
        found.metadata.name,
        found.spec.controller if found.spec else None,
        (found.metadata.annotations or {}).get(_DEFAULT_CLASS) == "true",
    )


def decode_service_range(raw: bytes | dict[str, Any]) -> ServiceRange:
    """Return the ServiceCIDR. Raises DecodingError, also for a range that can't be read."""
    found = decode(raw, api.ServiceCIDR)
    check_size(raw, found.spec)
    texts = (found.spec.cidrs if found.spec else None) or []
    try:
        return ServiceRange(ref_of("ServiceCIDR", found.metadata).name, tuple(map(network_of, texts)))
    except ValueError as error:
        raise DecodingError(f"ServiceCIDR {found.metadata.name}: spec.cidrs: {error}") from error


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
    decode: Callable[[bytes | dict[str, Any]], object | None]

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


_Value = TypeVar("_Value")


def assembled(
    collections: Iterable[tuple[object, ...]],
    unreadable: Iterable[Unreadable] = (),
    not_covered: Iterable[str] = (),
) -> Snapshot:
    """Return the Snapshot of collections, each of one kind; the only collection of a kind is used as it is.

    EndpointSlices of an existing relay come as tuples of endpoints, those of the API servers as sets.
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
        nodes=of(NodeAddresses),
        relay_service=next(iter(of(RelayService)), None),
        # While an endpoint moves from one slice to another, it may be in both (KEP-752).
        relay_endpoints=tuple(dict.fromkeys(endpoint for found in of(tuple) for endpoint in found)),
        api_servers=frozenset(chain.from_iterable(of(frozenset))),
        unreadable=tuple(unreadable),
        not_covered=tuple(not_covered),
    )
