"""Decodes API objects, as JSON bytes or as plain dicts, into the model's values. Pure.

Only the few fields used are decoded. A problem with a part of an object is added to its `problems`, and that
part is left out; a problem with the whole raises DecodingError.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from itertools import islice
from typing import Any, TypeVar

import msgspec

from nodeagent.errors import SourceError, one_line, quoted
from nodeagent.model.addresses import IPAddress, IPNetwork
from nodeagent.model.objects import (
    CLASS_ANNOTATION,
    EXCLUDE,
    NO_ANNOTATIONS,
    ConfigMap,
    Ingress,
    IngressClass,
    LoadBalancerPoint,
    Node,
    ObjectRef,
    RelayEndpoint,
    RelayService,
    Service,
    ServicePort,
    ServiceRange,
)
from nodeagent.sharing import shared
from nodeagent.sources.objects import api
from nodeagent.typed_values import from_json, from_plain

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""How an EndpointSlice names its Service (KEP-752)."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
_GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
"""The label by which an implementation marks what it made for a Gateway of the same namespace (GEP-1762)."""


def decode_service(raw: bytes | dict[str, Any]) -> Service | None:
    """Return the Service, or None if its type is not LoadBalancer. Raises DecodingError."""
    found = decode(raw, api.Service)
    spec = found.spec or api.ServiceSpec()
    if spec.type != "LoadBalancer":
        return None
    problems: list[str] = []
    annotations = found.metadata.annotations or {}
    return Service(
        ref=ref_of("Service", found.metadata),
        uid=found.metadata.uid or "",
        created=created_of(found.metadata),
        cluster_ips=_cluster_ips(spec, problems),
        ports=_ports(spec, problems),
        points=_points(found.status, problems),
        external_ips=_external_ips(spec, problems),
        # A copy of the whole object as it was last applied: no rule uses it, and it is most of the bytes.
        annotations=short_annotations(
            {key: value for key, value in annotations.items() if key != _LAST_APPLIED}, problems
        ),
        problems=tuple(problems),
        gateway=(found.metadata.labels or {}).get(_GATEWAY_NAME),
        load_balancer_class=spec.loadBalancerClass,
        local_only=spec.internalTrafficPolicy == "Local",
    )


def decode_ingress(raw: bytes | dict[str, Any]) -> Ingress:
    """Return the Ingress with every host of its TLS section and its rules. Raises DecodingError.

    Of its annotations, only those on which decisions depend: controllers write others all the time.
    """
    found = decode(raw, api.Ingress)
    spec = found.spec or api.IngressSpec()
    problems: list[str] = []
    asked = [host for tls in spec.tls or () for host in tls.hosts or ()]
    asked += [rule.host for rule in spec.rules or () if rule.host]
    return Ingress(
        ref=ref_of("Ingress", found.metadata),
        created=created_of(found.metadata),
        class_name=shared(spec.ingress_class_name),
        hosts=some_hosts((host for host in asked if host), problems),
        points=_points(found.status, problems),
        annotations=deciding_annotations(found.metadata),
        problems=tuple(problems),
    )


def decode_ingress_class(raw: bytes | dict[str, Any]) -> IngressClass:
    """Return the IngressClass. Raises DecodingError."""
    found = decode(raw, api.IngressClass)
    return IngressClass(
        found.metadata.name,
        found.spec.controller if found.spec else None,
        (found.metadata.annotations or {}).get(_DEFAULT_CLASS) == "true",
    )


def decode_config_map(raw: bytes | dict[str, Any]) -> ConfigMap:
    """Return the ConfigMap. Raises DecodingError."""
    found = decode(raw, api.ConfigMap)
    return ConfigMap(ref_of("ConfigMap", found.metadata), found.data or {})


def decode_node(raw: bytes | dict[str, Any]) -> Node:
    """Return the Node. Raises DecodingError, also for an invalid address range: pods depend on it."""
    found = decode(raw, api.Node)
    spec = found.spec or api.NodeSpec()
    ranges = spec.podCIDRs or ([spec.podCIDR] if spec.podCIDR else [])
    try:
        pod_cidrs = tuple(_network(text) for text in ranges)
    except ValueError as error:
        raise DecodingError(f"Node {found.metadata.name}: spec.podCIDRs: {error}") from error
    reported = found.status.addresses if found.status and found.status.addresses else []
    internal = [address_of(entry.address) for entry in reported if entry.type == "InternalIP"]
    external = [address_of(entry.address) for entry in reported if entry.type == "ExternalIP"]
    names = [entry.address for entry in reported if entry.type in {"Hostname", "InternalDNS", "ExternalDNS"}]
    return Node(
        name=found.metadata.name,
        pod_cidrs=pod_cidrs,
        addresses=tuple(address for address in internal if address is not None),
        names=tuple(dict.fromkeys(names)),
        provider_id=one_line(spec.providerID or ""),
        external_addresses=tuple(address for address in external if address is not None),
    )


def decode_service_range(raw: bytes | dict[str, Any]) -> ServiceRange:
    """Return the ServiceCIDR. Raises DecodingError, also for a range that can't be read."""
    found = decode(raw, api.ServiceCIDR)
    texts = (found.spec.cidrs if found.spec else None) or []
    try:
        return ServiceRange(ref_of("ServiceCIDR", found.metadata).name, tuple(map(_network, texts)))
    except ValueError as error:
        raise DecodingError(f"ServiceCIDR {found.metadata.name}: spec.cidrs: {error}") from error


def decode_relay_service(raw: bytes | dict[str, Any]) -> RelayService:
    """Return an existing relay Service of any type: its ClusterIPs count. Raises DecodingError."""
    found = decode(raw, api.Service)
    spec = found.spec or api.ServiceSpec()
    ignored: list[str] = []
    return RelayService(
        ref=ref_of("Service", found.metadata),
        cluster_ips=_cluster_ips(spec, ignored),
        ports=_ports(spec, ignored),
    )


def decode_relay_endpoints(raw: bytes | dict[str, Any]) -> tuple[RelayEndpoint, ...]:
    """Return the TCP ports of every endpoint in an EndpointSlice. Raises DecodingError.

    According to the API's reference, the first of `addresses` counts, a missing `ready` means ready, and a
    missing port means all ports, of which none could be chosen. An endpoint that is a name (addressType FQDN)
    is ignored.
    """
    found = decode(raw, api.EndpointSlice)
    ports = [
        (port.name or "", port.port)
        for port in found.ports or ()
        if port.port is not None and 0 < port.port < 65536 and (port.protocol or "TCP") == "TCP"
    ]
    return tuple(
        RelayEndpoint(address, name, port, endpoint.node_name, _is_ready(endpoint))
        for endpoint in found.endpoints or ()
        if endpoint.addresses and (address := address_of(endpoint.addresses[0])) is not None
        for name, port in ports
    )


def service_of_slice(raw: bytes | dict[str, Any]) -> tuple[str, str]:
    """Return namespace and name of an EndpointSlice's Service; no name if no label has it."""
    metadata = decode(raw, api.Head).metadata
    return metadata.namespace or "default", (metadata.labels or {}).get(SERVICE_NAME_LABEL, "")


def namespace_and_name(raw: bytes | dict[str, Any]) -> tuple[str, str]:
    """Return namespace and name of any object. Raises DecodingError."""
    metadata = decode(raw, api.Head).metadata
    return metadata.namespace or "default", metadata.name


def describe(raw: bytes | dict[str, Any], kind: str) -> str:
    """`Kind namespace/name` of an object that may be unreadable otherwise; `Kind (unnamed)` at worst."""
    try:
        return str(ref_of(kind, decode(raw, api.Head).metadata))
    except DecodingError:
        return f"{kind} (unnamed)"


def _ports(spec: api.ServiceSpec, problems: list[str]) -> tuple[ServicePort, ...]:
    found = [
        ServicePort(port.name or "", (port.protocol or "TCP").upper(), port.port)
        for port in spec.ports or ()
        if _is_port(port.port, problems)
    ]
    if len(found) > MOST_PORTS:
        problems.append(f"spec.ports: more than {MOST_PORTS} ports: the rest is not read, TCP ports first")
        found.sort(key=lambda port: port.protocol != "TCP")
    return tuple(found[:MOST_PORTS])


def _is_ready(endpoint: api.SliceEndpoint) -> bool:
    return endpoint.conditions is None or endpoint.conditions.ready is not False


def _is_port(number: int, problems: list[str]) -> bool:
    if 0 < number < 65536:
        return True
    problems.append(f"spec.ports: {number} is not a port number")
    return False


def _cluster_ips(spec: api.ServiceSpec, problems: list[str]) -> tuple[IPAddress, ...]:
    given = spec.clusterIPs or ([spec.clusterIP] if spec.clusterIP else [])
    found = []
    for text in given:
        address = address_of(text)
        if address is not None:
            found.append(address)
        elif text != "None":
            problems.append(f"spec.clusterIPs: {text!r} is not an IP address")
    return tuple(found)


def _external_ips(spec: api.ServiceSpec, problems: list[str]) -> tuple[IPAddress, ...]:
    found = [(text, address_of(text)) for text in spec.externalIPs or ()]
    problems += [f"spec.externalIPs: {quoted(text)} is not an IP address" for text, ip in found if ip is None]
    return tuple(address for _, address in found if address is not None)


def _points(status: api.Status | None, problems: list[str]) -> tuple[LoadBalancerPoint, ...]:
    entries = (status.load_balancer.ingress if status and status.load_balancer else None) or ()
    if len(entries) > MOST_POINTS:
        problems.append(f"status.loadBalancer.ingress: the rest after {MOST_POINTS} entries is not read")
    found = []
    for index, entry in enumerate(entries[:MOST_POINTS]):
        address = address_of(entry.ip) if entry.ip else None
        if entry.ip and address is None:
            problems.append(f"status.loadBalancer.ingress[{index}].ip: {entry.ip!r} is not an IP address")
        if address is not None or entry.hostname:
            hostname = one_line(entry.hostname) if entry.hostname else None
            found.append(LoadBalancerPoint(address, hostname, entry.ip_mode))
    return shared(tuple(found))


def _network(text: str) -> IPNetwork:
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    return ip_network(text, strict=False)


# Shared by the decoders of all kinds: JSON to a Struct, an object's name and age, an address.


MOST_HOSTS = 10_000
"""Hosts that one object may claim; the rest is not read."""

MOST_PORTS = 1000
"""Ports of one Service; nothing is relayed for one that has so many (limits.portsPerService)."""

MOST_POINTS = 5000
"""Entries of a load balancer's status: ServiceLB names every node, of which Kubernetes supports so many."""

_LONGEST_ANNOTATION = 4096
"""Characters of an annotation's value that a decision may use; a longer one is not read."""

_CLUSTER_WIDE = frozenset({"IngressClass", "Namespace", "Node", "ServiceCIDR"})

_DECIDING = frozenset({CLASS_ANNOTATION, EXCLUDE})


class DecodingError(SourceError):
    """One object can't be read at all; the others are still served."""


_Raw = TypeVar("_Raw")

# RFC 1123 subdomain, as the API server requires of names (apimachinery's validation.IsDNS1123Subdomain).
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def decode(raw: bytes | dict[str, Any], expected: type[_Raw]) -> _Raw:
    """Return the object as the Struct `expected`. Raises DecodingError."""
    try:
        if isinstance(raw, bytes):
            return from_json(raw, expected)
        return from_plain(raw, expected)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodingError(one_line(error)) from error


def ref_of(kind: str, metadata: api.Metadata) -> ObjectRef:
    """Return the object's name. Raises DecodingError for a name that no API server accepts."""
    namespace = "" if kind in _CLUSTER_WIDE else metadata.namespace or "default"
    for what, text in (("name", metadata.name), ("namespace", namespace or "none")):
        if not _NAME.fullmatch(text):
            raise DecodingError(
                f"metadata.{what}: {one_line(ascii(text))} is not a name that the API server accepts"
            )
    return ObjectRef(kind, shared(namespace), shared(metadata.name))


def created_of(metadata: api.Metadata) -> datetime | None:
    """Return the creation time.

    One without a zone counts as UTC, so that every node orders objects alike.
    """
    time = metadata.creationTimestamp
    return time.replace(tzinfo=UTC) if time and time.tzinfo is None else time


def deciding_annotations(metadata: api.Metadata) -> Mapping[str, str]:
    """Return the annotations that decide about an object's claims.

    Controllers write others all the time.
    """
    found = {key: value for key, value in (metadata.annotations or {}).items() if key in _DECIDING}
    return found or NO_ANNOTATIONS


def short_annotations(annotations: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Return the annotations, except those with values longer than any provider writes.

    `problems` lists them.
    """
    long = [key for key, value in annotations.items() if len(value) > _LONGEST_ANNOTATION]
    problems += [
        f"metadata.annotations: {quoted(key)}: longer than {_LONGEST_ANNOTATION} characters: not read"
        for key in long
    ]
    return {key: value for key, value in annotations.items() if len(value) <= _LONGEST_ANNOTATION}


def some_hosts(hosts: Iterable[str], problems: list[str]) -> tuple[str, ...]:
    """Return the hosts in their order, each once, up to `MOST_HOSTS`; `problems` mentions the rest."""
    found = tuple(islice(dict.fromkeys(hosts), MOST_HOSTS + 1))
    if len(found) > MOST_HOSTS:
        problems.append(f"more than {MOST_HOSTS} hosts: the rest is not read")
    return found[:MOST_HOSTS]


def address_of(text: str) -> IPAddress | None:
    """Return the address; None for an invalid one, and for one with a zone."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A zone (fe80::1%eth0) names an interface of another machine.
    return None if getattr(address, "scope_id", None) else address
