"""Decodes API objects, as JSON bytes or as plain dicts, into the model's values. Pure.

A part that can't be used is left out, and named in the object's `problems`; a problem with the whole raises
DecodingError.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from itertools import islice

from nodeagent.errors import one_line, quoted, shortened
from nodeagent.model import objects as model
from nodeagent.model.addresses import LONGEST_HOSTNAME, Endpoint, IPAddress, IPNetwork
from nodeagent.sources.objects import api
from nodeagent.typed_values import TRUE, intern

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
"""The label by which an implementation marks what it made for a Gateway of the same namespace (GEP-1762)."""
_ENVOY_GATEWAY = "gateway.envoyproxy.io/owning-gateway"
_ENVOY_GATEWAY_HOME = "envoy-gateway-system"
"""Envoy Gateway's own namespace, by default, where its Services have two labels (envoyproxy/gateway, v1.9.0:
internal/gatewayapi/helpers.go:271-277). In any other, a Service could claim to be others' Gateway."""
MOST_PORTS = 1000
"""Ports of one Service; nothing is relayed for one that has so many (limits.portsPerService)."""
MOST_POINTS = 5000
"""Entries of a load balancer's status: ServiceLB names every node, of which Kubernetes supports so many."""
MOST_EXTERNAL_IPS = 1000
"""External IPs, or ClusterIPs, of one Service."""
MOST_HOSTS = 10_000
"""Hosts that one object may claim; the rest is not read."""
_MOST_HOST_BYTES = 512 * 1024
"""Bytes of all hosts of an object together."""
_LONGEST_ANNOTATION = 4096
"""Characters of an annotation's value that a decision may use; a longer one is not read."""
_MOST_ANNOTATIONS = 32 * 1024
"""Characters of all annotations that are kept of an object; each counts as 100 more."""
_MOST_PROBLEMS = 10
"""Problems of one object that are reported."""
_PLAIN = re.compile(r"(?:\*\.)?[\w-]+(?:\.[\w-]+)*\.?", re.ASCII)
_NGINX = "nginx.ingress.kubernetes.io"
# ingress-nginx, "Annotations": "Server Alias" (commas between them) and "Redirect from/to www", which
# Traefik's provider for these annotations reads as well (not for wildcards). haproxy-ingress, "Configuration
# keys": "Server alias". Kong/kubernetes-ingress-controller: internal/annotations (ExtractHostAliases).
_ALIASES = (
    f"{_NGINX}/server-alias",
    "haproxy-ingress.github.io/server-alias",
    "ingress.kubernetes.io/server-alias",
    "konghq.com/host-aliases",
)
_WWW = f"{_NGINX}/from-to-www-redirect"
_OTHER_PROXY = "service.kubernetes.io/service-proxy-name"
"""A label: kube-proxy ignores the Service (kubernetes: pkg/proxy/apis/well_known_labels.go)."""
_CLUSTER_WIDE = frozenset({"IngressClass", "Namespace", "Node", "ServiceCIDR"})


def _gateway_of(metadata: api.Metadata) -> tuple[str | None, str]:
    """Return name and namespace of the Gateway that a Service was made for; empty for its own namespace."""
    labels = metadata.labels or {}
    if metadata.namespace == _ENVOY_GATEWAY_HOME:
        owner = labels.get(f"{_ENVOY_GATEWAY}-name"), labels.get(f"{_ENVOY_GATEWAY}-namespace")
        if owner[0] and owner[1]:
            return owner[0], owner[1]
    return labels.get(_GATEWAY_NAME), ""


def decode_service(raw: api.Raw) -> model.Service | None:
    """Return the Service, or None if its type is not LoadBalancer."""
    service = api.decode(raw, api.Service)
    spec = service.spec or api.ServiceSpec()
    if spec.type != "LoadBalancer":
        return None
    problems: list[str] = []
    gateway, gateway_namespace = _gateway_of(service.metadata)
    return model.Service(
        ref=ref_of("Service", service.metadata),
        uid=cut(service.metadata.uid or ""),
        created=created_of(service.metadata),
        cluster_ips=() if _OTHER_PROXY in (service.metadata.labels or {}) else _cluster_ips(spec, problems),
        ports=_ports(spec, problems),
        points=_points(service.status, problems),
        external_ips=_addresses("spec.externalIPs", spec.externalIPs or [], problems),
        annotations=short_annotations(service.metadata.annotations or {}, problems),
        problems=some_problems(problems),
        gateway=gateway,
        gateway_namespace=gateway_namespace,
        load_balancer_class=spec.loadBalancerClass and cut(spec.loadBalancerClass),
        local_only=spec.internalTrafficPolicy == "Local",
    )


def decode_ingress(raw: api.Raw) -> model.Ingress:
    """Return the Ingress with every host of its TLS section, rules and aliases."""
    ingress = api.decode(raw, api.Ingress)
    spec = ingress.spec or api.IngressSpec()
    problems: list[str] = []
    hosts = [host for tls in spec.tls or () for host in tls.hosts or () if host]
    hosts += [rule.host for rule in spec.rules or () if rule.host]
    hosts += aliases(ingress.metadata.annotations or {}, tuple(hosts))
    return model.Ingress(
        ref=ref_of("Ingress", ingress.metadata),
        created=created_of(ingress.metadata),
        class_name=intern(spec.ingress_class_name and cut(spec.ingress_class_name)),
        hosts=some_hosts(hosts, problems),
        points=_points(ingress.status, problems),
        annotations=deciding_annotations(ingress.metadata),
        problems=some_problems(problems),
    )


def decode_node(raw: api.Raw) -> model.Node:
    """Return the Node. Raises DecodingError also for an invalid address range: pods depend on it."""
    node = api.decode(raw, api.Node)
    api.check_size(raw, node.metadata.name, node.spec, node.status)
    spec = node.spec or api.NodeSpec()
    ranges = spec.podCIDRs or ([spec.podCIDR] if spec.podCIDR else [])
    try:
        pod_cidrs = tuple(map(network_of, ranges))
    except ValueError as error:
        raise api.DecodingError(f"Node {node.metadata.name}: spec.podCIDRs: {error}") from error
    reported = (node.status and node.status.addresses) or []
    names = [entry.address for entry in reported if entry.type in {"Hostname", "InternalDNS", "ExternalDNS"}]
    return model.Node(
        name=node.metadata.name,
        pod_cidrs=pod_cidrs,
        addresses=_node_addresses(node, "InternalIP"),
        names=tuple(dict.fromkeys(names)),
        provider_id=one_line(spec.providerID or ""),
        external_addresses=_node_addresses(node, "ExternalIP"),
    )


def _node_addresses(node: api.Node, *kinds: str) -> tuple[IPAddress, ...]:
    reported = (node.status and node.status.addresses) or ()
    texts = (entry.address for entry in reported if not kinds or entry.type in kinds)
    return tuple(address for address in map(address_of, texts) if address is not None)


def decode_node_addresses(raw: api.Raw) -> model.NodeAddresses:
    """Return the name, all addresses and the cloud of any node."""
    node = api.decode(raw, api.Node)
    api.check_size(raw, node.metadata.name, node.status)
    return model.NodeAddresses(
        node.metadata.name,
        frozenset(_node_addresses(node)),
        one_line((node.spec and node.spec.providerID) or ""),
    )


def decode_external_ips(raw: api.Raw) -> model.ExternalIPs | None:
    """Return the externalIPs of a Service of another type than LoadBalancer."""
    service = api.decode(raw, api.Service)
    spec = service.spec or api.ServiceSpec()
    if not spec.externalIPs or spec.type == "LoadBalancer":
        return None
    addresses = _addresses("spec.externalIPs", spec.externalIPs, [])
    return model.ExternalIPs(ref_of("Service", service.metadata), addresses, _ports(spec, []))


def decode_relay_service(raw: api.Raw) -> model.RelayService:
    """Return an existing relay Service, of any type."""
    service = api.decode(raw, api.Service)
    spec = service.spec or api.ServiceSpec()
    return model.RelayService(ref_of("Service", service.metadata), _cluster_ips(spec, []), _ports(spec, []))


def decode_relay_endpoints(raw: api.Raw) -> tuple[model.RelayEndpoint, ...]:
    """Return the TCP ports of every endpoint in an EndpointSlice, except of one that is a name.

    According to the API's reference, the first of `addresses` counts, a missing `ready` means ready, and a
    missing port means all ports, of which none could be chosen.
    """
    endpoint_slice = api.decode(raw, api.EndpointSlice)
    ports = [
        (port.name or "", port.port)
        for port in endpoint_slice.ports or ()
        if port.port is not None and 0 < port.port < 65536 and (port.protocol or "TCP") == "TCP"
    ]
    every = (
        model.RelayEndpoint(
            address,
            name,
            port,
            endpoint.node_name and cut(endpoint.node_name),
            endpoint.conditions is None or endpoint.conditions.ready is not False,
        )
        for endpoint in endpoint_slice.endpoints or ()
        if endpoint.addresses and (address := address_of(endpoint.addresses[0])) is not None
        for name, port in ports
    )
    return tuple(islice(every, MOST_POINTS))


def decode_api_servers(raw: api.Raw) -> frozenset[Endpoint]:
    """Return the endpoints in EndpointSlice default/kubernetes, ready or not."""
    return frozenset(Endpoint(endpoint.address, endpoint.port) for endpoint in decode_relay_endpoints(raw))


def describe(raw: api.Raw, kind: str) -> str:
    """Return `Kind namespace/name` of an object that may be unreadable otherwise."""
    try:
        return str(ref_of(kind, api.decode(raw, api.Named).metadata))
    except api.DecodingError:
        return f"{kind} without a usable name"


def _ports(spec: api.ServiceSpec, problems: list[str]) -> tuple[model.ServicePort, ...]:
    ports = [
        model.ServicePort(
            cut(port.name or ""), cut(port.protocol or "TCP").upper(), port.port, port.nodePort or 0
        )
        for port in spec.ports or ()
        if 0 < port.port < 65536
    ]
    wrong = [port.port for port in spec.ports or () if not 0 < port.port < 65536]
    problems += [f"spec.ports: {number} is not a port number" for number in wrong]
    if len(ports) > MOST_PORTS:
        problems.append(f"spec.ports: more than {MOST_PORTS} ports: the rest is not read, TCP ports first")
        ports.sort(key=lambda port: port.protocol != "TCP")
    return tuple(ports[:MOST_PORTS])


def _cluster_ips(spec: api.ServiceSpec, problems: list[str]) -> tuple[IPAddress, ...]:
    texts = spec.clusterIPs or ([spec.clusterIP] if spec.clusterIP else [])
    return _addresses("spec.clusterIPs", [text for text in texts if text != "None"], problems)


def _addresses(field: str, texts: Sequence[str], problems: list[str]) -> tuple[IPAddress, ...]:
    if len(texts) > MOST_EXTERNAL_IPS:
        problems.append(f"{field}: the rest after {MOST_EXTERNAL_IPS} entries is not read")
    decoded = [(text, address_of(text)) for text in texts[:MOST_EXTERNAL_IPS]]
    problems += [f"{field}: {quoted(text)} is not an IP address" for text, ip in decoded if ip is None]
    return tuple(address for _, address in decoded if address is not None)


def _points(status: api.Status | None, problems: list[str]) -> tuple[model.LoadBalancerPoint, ...]:
    entries = status.load_balancer.ingress if status and status.load_balancer else None
    return points_of(entries or (), "status.loadBalancer.ingress", problems)


def points_of(
    entries: Sequence[api.Point], field: str, problems: list[str]
) -> tuple[model.LoadBalancerPoint, ...]:
    """Return what a controller reported at the `field`."""
    if len(entries) > MOST_POINTS:
        problems.append(f"{field}: the rest after {MOST_POINTS} entries is not read")
    points = []
    for index, entry in enumerate(entries[:MOST_POINTS]):
        address = address_of(entry.ip) if entry.ip else None
        if entry.ip and address is None:
            problems.append(f"{field}[{index}]: {quoted(entry.ip)} is not an IP address")
        name = entry.hostname or ""
        hostname = one_line(name)[:LONGEST_HOSTNAME] if name.isascii() else ""
        if address is not None or hostname:
            mode = entry.ip_mode and cut(entry.ip_mode)
            points.append(model.LoadBalancerPoint(address, hostname or None, mode))
    return intern(tuple(points))


def network_of(text: str) -> IPNetwork:
    """Return the range; raises ValueError, also for one with a zone."""
    if "%" in text:
        raise ValueError(f"{text!r} has a zone")
    return ip_network(text, strict=False)


# RFC 1123 subdomain, as the API server requires of names (apimachinery's validation.IsDNS1123Subdomain).
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def ref_of(kind: str, metadata: api.Name) -> model.ObjectRef:
    """Return the object's name. Raises DecodingError for a name that no API server accepts."""
    namespace = "" if kind in _CLUSTER_WIDE else metadata.namespace or "default"
    for field, name in (("name", metadata.name), ("namespace", namespace or "none")):
        if not _NAME.fullmatch(name):
            shown = f"metadata.{field}: {quoted(name)}"
            raise api.DecodingError(f"{shown} is not a name that the API server accepts")
    return model.ObjectRef(kind, intern(namespace), intern(metadata.name))


def created_of(metadata: api.Metadata) -> datetime | None:
    """Return the creation time; without a zone, in UTC: every node must order objects alike."""
    time = metadata.creationTimestamp
    return time.replace(tzinfo=UTC) if time and time.tzinfo is None else time


def deciding_annotations(metadata: api.Metadata) -> Mapping[str, str]:
    """Return the annotations that decide about claims: controllers write others all the time."""
    values = metadata.annotations or {}
    deciding = {key: cut(values[key]) for key in (model.CLASS_ANNOTATION, model.EXCLUDE) if key in values}
    return deciding or model.NO_ANNOTATIONS


def cut(text: str) -> str:
    """Return the text, cut off if it is longer than any name: nothing has such a name, cut or not."""
    return shortened(text, LONGEST_HOSTNAME)


def short_annotations(annotations: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Return the annotations except very long ones, and the longest of too many.

    Others than ASCII, which would take up to four times the memory, and the copy of the whole object as it
    was last applied are used by no rule.
    """
    short: dict[str, str] = {}
    left = _MOST_ANNOTATIONS
    for key, value in sorted(annotations.items(), key=lambda item: len(item[1])):
        if key == _LAST_APPLIED or not (key.isascii() and value.isascii()):
            continue
        left -= len(key) + len(value) + 100
        if len(value) > _LONGEST_ANNOTATION:
            bound = f"longer than {_LONGEST_ANNOTATION} characters"
        elif left < 0:
            bound = f"more than {_MOST_ANNOTATIONS} characters in all"
        else:
            short[key] = value
            continue
        problems.append(f"metadata.annotations: {quoted(key)}: {bound}: not read")
    return short


def some_problems(problems: list[str]) -> tuple[str, ...]:
    """Return an object's problems, the first of many."""
    more = len(problems) - _MOST_PROBLEMS
    return (*problems[:_MOST_PROBLEMS], *([f"{more} more problems like these"] if more > 0 else []))


def address_of(text: str) -> IPAddress | None:
    """Return the address; None for an invalid one, and for one with a zone: another machine's interface."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def plain(text: str) -> tuple[str, ...]:
    """Return the hostname; nothing for a pattern (`~^www`, `*`), or for one with a port."""
    return (text,) if _PLAIN.fullmatch(text) else ()


def aliases(annotations: Mapping[str, str], hosts: Iterable[str]) -> Iterator[str]:
    """Yield the further hosts of an Ingress that has these: its aliases, and each with or without `www.`."""
    for key in _ALIASES:
        if key in annotations:
            for alias in annotations[key].split(","):
                yield from plain(alias.strip())
    if annotations.get(_WWW) in TRUE:
        for host in hosts:
            yield from plain(host.removeprefix("www.") if host.startswith("www.") else f"www.{host}")


def some_hosts(hosts: Iterable[str], problems: list[str]) -> tuple[str, ...]:
    """Return the hosts in their order, each once, up to `MOST_HOSTS`."""
    distinct: dict[str, None] = {}
    left, odd = _MOST_HOST_BYTES, 0
    for host in hosts:
        if len(host) > LONGEST_HOSTNAME or not host.isascii():
            odd += 1
            continue
        if host in distinct:
            continue
        left -= len(host)
        if left < 0 or len(distinct) == MOST_HOSTS:
            bound = f"{MOST_HOSTS} hosts" if left >= 0 else f"{_MOST_HOST_BYTES} bytes of hosts"
            problems.append(f"more than {bound}: the rest is not read")
            break
        distinct[host] = None
    if odd:
        which = f"hosts that are longer than {LONGEST_HOSTNAME} characters, or not ASCII"
        problems.append(f"{which}: {odd} not read")
    return tuple(distinct)
