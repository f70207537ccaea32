"""Hypothesis strategies for the model's values: small pools, so that names, addresses and ports collide."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from string import ascii_lowercase, digits
from typing import Literal, TypeVar

from hypothesis import strategies as st

from nodeagent.config.option_types import DnsName, PodNetwork
from nodeagent.config.options import (
    Config,
    DnatOptions,
    HostsOptions,
    LoadBalancerOptions,
    ProxyService,
    RelayOptions,
    ServiceName,
)
from nodeagent.model.addresses import Endpoint, IPAddress, IPNetwork
from nodeagent.model.facts import Facts, InterfaceAddress, UserHostsLine
from nodeagent.model.objects import (
    EXCLUDE,
    GATEWAY_API,
    PROXY_PROTOCOL,
    AllowedNamespaces,
    ControllerRoute,
    Gateway,
    GatewayListener,
    Ingress,
    IngressClass,
    ListenerSet,
    LoadBalancerPoint,
    Node,
    ObjectRef,
    ParentRef,
    Route,
    Service,
    ServicePort,
    Snapshot,
    Unreadable,
)
from nodeagent.plan.detection.providers import PROVIDERS

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

NAMESPACES = ("ingress", "team")
NAMES = ("blue", "green", "red", "white")
PORTS = (80, 443, 6443, 8443)
SUFFIXES = ("example.com", "corp.example.com", "com", "svc", "node1", "test")
LOAD_BALANCER_IPS: tuple[IPAddress, ...] = tuple(
    ip_address(text)
    for text in (
        "192.0.2.1",
        "192.0.2.2",
        "192.0.2.3",
        "2001:db8::1",
        "2001:db8::2",
        "127.0.0.1",
        "0.0.0.0",
        "::",
        "ff02::1",
    )
)
CLUSTER_IPS: tuple[IPAddress, ...] = (
    ip_address("10.96.0.7"),
    ip_address("10.96.0.8"),
    ip_address("fd00:10:96::7"),
)
RELAY_IPV4 = (
    IPv4Network("169.254.66.0/24"),
    IPv4Network("169.254.66.0/29"),
    IPv4Network("169.254.66.0/30"),
    IPv4Network("169.254.66.0/32"),
)
RELAY_IPV6 = (
    IPv6Network("fd68:6169:7270::/112"),
    IPv6Network("fd68:6169:7270::/126"),
    IPv6Network("fd68:6169:7270::/128"),
)
POD_RANGES: tuple[IPNetwork, ...] = tuple(
    ip_network(text) for text in ("10.244.1.0/24", "10.244.1.0/25", "10.244.2.0/24", "fd00:10:244::/64")
)
ABSURD_HOSTS = (
    "",
    ".",
    "..",
    "*",
    "*.",
    "*.*.example.com",
    "a..example.com",
    "-a.example.com",
    "a-.example.com",
    "_dmarc.example.com",
    "two words.example.com",
    "line\nbreak.example.com",
    "nul\0.example.com",
    "tab\t.example.com",
    "escape\x1b[2J.example.com",
    "comment#.example.com",
    "\U0001f60a.example.com",
    "b\u00fccher.example.com",
    "\u212aelvin.example.com",
    "127.0.0.1",
    "1.2.3",
    "[::1]",
    "::1",
    "x" * 64 + ".example.com",
    "x." * 150 + "com",
)
GOOD_HOSTS = (
    "example.com",
    "www.example.com",
    "WWW.Example.COM",
    "www.example.com.",
    "shop.corp.example.com",
    "*.example.com",
    "localhost",
    "app.localhost",
    "node1",
    "kubernetes.default.svc",
    "x.cluster.local",
    "api.example.com",
    "registry.test",
)

ANNOTATIONS = (
    EXCLUDE,
    PROXY_PROTOCOL,
    *(switch.key.format(port=443) for provider in PROVIDERS for switch in provider.switches),
)
ANNOTATION_VALUES = (
    *("true", "false", "1", "0", "*", "v1", "v2", "none", "on", "off", "80,443", "443", "http,https", ""),
    *('{"proxy-protocol": "v2"}', '{"backends": [{"name": "http"}]}', "proxy_protocol_v2.enabled=true"),
)

_Value = TypeVar("_Value")


def mostly(usual: st.SearchStrategy[_Value], odd: st.SearchStrategy[_Value]) -> st.SearchStrategy[_Value]:
    """The usual in seven of eight draws, so that whole clusters of usual things come up often enough."""
    return st.sampled_from([usual] * 7 + [odd]).flatmap(lambda chosen: chosen)


times = st.none() | st.integers(0, 5).map(lambda seconds: EPOCH + timedelta(seconds=seconds))
hosts = mostly(st.sampled_from(GOOD_HOSTS), st.sampled_from(ABSURD_HOSTS) | st.text(max_size=20))
dns_names = (
    st.lists(st.text(ascii_lowercase + digits, min_size=1, max_size=4), min_size=1, max_size=3)
    .map(".".join)
    .map(DnsName)
)
versions: st.SearchStrategy[Literal["v1", "v2"]] = st.sampled_from(["v1", "v2"])


def refs(kind: str) -> st.SearchStrategy[ObjectRef]:
    """Names of objects of one kind, from a pool of eight."""
    return st.builds(ObjectRef, st.just(kind), st.sampled_from(NAMESPACES), st.sampled_from(NAMES))


usual_points = st.builds(LoadBalancerPoint, ip=st.sampled_from(LOAD_BALANCER_IPS[:5]))
odd_points = st.builds(
    LoadBalancerPoint,
    ip=st.none() | st.sampled_from(LOAD_BALANCER_IPS),
    hostname=st.none() | st.sampled_from(["lb1.example.net", "lb2.example.net"]),
    ip_mode=st.sampled_from([None, "VIP", "Proxy", "Unheard-of"]),
)
points = mostly(usual_points, odd_points)
statuses = mostly(
    st.lists(points, min_size=1, max_size=3).map(tuple), st.lists(points, max_size=1).map(tuple)
)
problems: st.SearchStrategy[tuple[str, ...]] = mostly(
    st.just(()), st.just(("spec.ports: 0 is not a port number",))
)
service_ports = st.builds(
    ServicePort,
    name=st.sampled_from(["", "http", "https"]),
    protocol=mostly(st.just("TCP"), st.sampled_from(["UDP", "SCTP"])),
    port=st.sampled_from(PORTS),
)
annotations: st.SearchStrategy[dict[str, str]] = st.dictionaries(
    st.sampled_from(ANNOTATIONS), st.sampled_from(ANNOTATION_VALUES) | st.text(max_size=8), max_size=3
)
services = st.builds(
    Service,
    ref=refs("Service"),
    annotations=mostly(st.just({}), annotations),
    external_ips=mostly(st.just(()), st.lists(st.sampled_from(LOAD_BALANCER_IPS), max_size=2).map(tuple)),
    created=times,
    cluster_ips=mostly(
        st.lists(st.sampled_from(CLUSTER_IPS), min_size=1, max_size=2, unique=True).map(tuple), st.just(())
    ),
    ports=mostly(st.lists(service_ports, min_size=1, max_size=4).map(tuple), st.just(())),
    points=statuses,
    problems=problems,
)
ingresses = st.builds(
    Ingress,
    ref=refs("Ingress"),
    created=times,
    class_name=st.sampled_from([None, "nginx", "internal"]),
    hosts=st.lists(hosts, max_size=4).map(tuple),
    points=statuses,
    problems=problems,
)
ingress_classes = st.builds(
    IngressClass,
    name=st.sampled_from(["nginx", "internal"]),
    controller=st.sampled_from([None, "k8s.io/ingress-nginx", "traefik.io/ingress-controller"]),
    default=st.booleans(),
)
allowed_namespaces = st.sampled_from(["All", "Same", "None"]).map(AllowedNamespaces)  # type: ignore[arg-type]
parents = st.builds(
    ParentRef,
    group=st.just(GATEWAY_API),
    kind=mostly(st.just("Gateway"), st.sampled_from(["ListenerSet", "Service"])),
    namespace=st.sampled_from(NAMESPACES),
    name=st.sampled_from(NAMES),
    section=mostly(st.none(), st.just("web")),
    port=mostly(st.none(), st.just(443)),
)
gateway_listeners = st.builds(
    GatewayListener,
    name=st.sampled_from(["web", "tls"]),
    port=st.sampled_from(PORTS),
    protocol=mostly(st.just("HTTPS"), st.sampled_from(["HTTP", "TLS", "UDP"])),
    hostname=st.none() | hosts,
    namespaces=allowed_namespaces,
)
listener_lists = st.lists(gateway_listeners, min_size=1, max_size=2).map(tuple)
gateways = st.builds(
    Gateway,
    ref=refs("Gateway"),
    created=times,
    listeners=listener_lists,
    points=statuses,
    allowed_listeners=allowed_namespaces,
    problems=problems,
)
listener_sets = st.builds(
    ListenerSet, ref=refs("ListenerSet"), group=st.just(GATEWAY_API), parent=parents, listeners=listener_lists
)
routes = st.builds(
    Route,
    ref=refs("HTTPRoute"),
    created=times,
    hostnames=st.lists(hosts, max_size=3).map(tuple),
    parents=st.lists(parents, max_size=3, unique=True).map(tuple),
)
controller_routes = st.builds(
    ControllerRoute,
    ref=refs("IngressRoute"),
    controller=st.just("traefik.io/ingress-controller"),
    created=times,
    hosts=st.lists(hosts, max_size=2).map(tuple),
)
nodes = st.builds(
    Node,
    name=st.just("node1"),
    pod_cidrs=st.lists(st.sampled_from(POD_RANGES), max_size=3).map(tuple),
    addresses=st.lists(st.sampled_from(LOAD_BALANCER_IPS[:5]), max_size=2).map(tuple),
    names=st.just(("node1",)),
    provider_id=st.sampled_from(["", "hcloud://1", "aws:///eu-west-1a/i-1", "k3s://node1"]),
)
snapshots = st.builds(
    Snapshot,
    services=st.lists(services, max_size=6, unique_by=lambda service: service.ref).map(tuple),
    ingresses=st.lists(ingresses, max_size=4, unique_by=lambda ingress: ingress.ref).map(tuple),
    node=st.none() | nodes,
    unreadable=st.lists(
        st.builds(Unreadable, st.sampled_from(["a.yaml:1", "b.yaml:7"]), st.just("not YAML")), max_size=2
    ).map(tuple),
)

snapshots_with_routes = st.builds(
    replace,
    snapshots,
    ingress_classes=st.lists(ingress_classes, max_size=2, unique_by=lambda found: found.name).map(tuple),
    gateways=st.lists(gateways, max_size=3, unique_by=lambda gateway: gateway.ref).map(tuple),
    listener_sets=st.lists(listener_sets, max_size=1).map(tuple),
    routes=st.lists(routes, max_size=4, unique_by=lambda route: route.ref).map(tuple),
    controller_routes=st.lists(controller_routes, max_size=1).map(tuple),
)

interface_addresses = st.builds(
    InterfaceAddress,
    address=st.integers(0, 7).map(lambda last: RELAY_IPV4[0][last]),
    prefix_length=st.just(32),
    interface=st.sampled_from(["hairpin0", "lo", "eth0"]),
    ours=st.booleans(),
)
user_names: st.SearchStrategy[Mapping[str, UserHostsLine]] = st.dictionaries(
    st.sampled_from(["www.example.com", "registry.test"]),
    st.builds(UserHostsLine, st.integers(1, 99), st.just("203.0.113.9"), st.booleans()),
)
facts = st.builds(
    Facts,
    node_name=st.just("node1"),
    node_names=st.just(frozenset({"node1"})),
    addresses=st.lists(interface_addresses, max_size=4, unique_by=lambda standing: standing.address).map(
        tuple
    ),
    api_servers=st.frozensets(
        st.builds(Endpoint, st.sampled_from(LOAD_BALANCER_IPS), st.sampled_from(PORTS)), max_size=2
    ),
    api_server_names=st.frozensets(st.just("api.example.com")),
    short_circuited=mostly(
        st.just(frozenset()), st.frozensets(st.sampled_from(LOAD_BALANCER_IPS[:5]), max_size=3)
    ),
    source_addresses=st.sampled_from([(), (ip_address("198.51.100.1"), ip_address("2001:db8:1::1"))]),
    port_holders=st.dictionaries(
        st.builds(
            Endpoint, st.sampled_from((ip_address("0.0.0.0"), ip_address("::"))), st.sampled_from(PORTS)
        ),
        st.sampled_from((0, 65534)),
        max_size=2,
    ),
    ipv6_off=mostly(st.just(""), st.just("sysctl net.ipv6.conf.all.disable_ipv6")),
    user_names=mostly(st.just({}), user_names),
)

proxy_services = st.builds(
    ProxyService,
    namespace=st.sampled_from(NAMESPACES).map(DnsName),
    name=st.sampled_from(NAMES).map(DnsName),
    proxy_protocol=versions,
)
every_service = tuple(
    ProxyService(DnsName(namespace), DnsName(name), "v2") for namespace in NAMESPACES for name in NAMES
)
service_names = st.builds(
    ServiceName, st.sampled_from(NAMESPACES).map(DnsName), st.sampled_from(NAMES).map(DnsName)
)
suffix_lists = st.lists(st.sampled_from(SUFFIXES).map(DnsName) | dns_names, max_size=3).map(tuple)
configs = st.builds(
    Config,
    load_balancers=st.builds(
        LoadBalancerOptions,
        services=mostly(st.just(every_service), st.lists(proxy_services, max_size=8).map(tuple)),
        ignore=mostly(st.just(()), st.lists(service_names, max_size=2).map(tuple)),
        detect=mostly(st.just(True), st.just(False)),  # noqa: FBT003 - an option's value
        ip_mode=st.sampled_from(["auto", "honor", "ignore"]),
    ),
    relay=st.builds(
        RelayOptions,
        ipv4=mostly(st.sampled_from(RELAY_IPV4[:2]), st.sampled_from(RELAY_IPV4)),
        ipv6=mostly(st.sampled_from(RELAY_IPV6[:2]), st.sampled_from(RELAY_IPV6)),
    ),
    dnat=st.builds(
        DnatOptions,
        backend=st.sampled_from(["auto", "nftables", "iptables", "none"]),
        pods=st.booleans(),
        pod_cidrs=st.lists(st.sampled_from(POD_RANGES).map(str).map(PodNetwork), max_size=2).map(tuple),
    ),
    hosts=st.builds(
        HostsOptions,
        enabled=mostly(st.just(True), st.booleans()),  # noqa: FBT003 - the option's value
        verify=st.sampled_from(["dns", "allow"]),
        allow=mostly(st.just((DnsName("example.com"), DnsName("test"))), suffix_lists),
        exclude=mostly(st.just(()), suffix_lists),
    ),
)
