"""Which addresses may be redirected, and to which Service they belong.

Some are never redirected, whatever a Service's status or externalIPs say: a status is text that anyone may
have written. On the rules that are the same on every node, relay addresses depend.

An address and port belong to the Service that comes first by precedence among all that publish them,
whether it sends PROXY or not: what is plain for one Service must not become PROXY because of another one.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress, IPNetwork, canonical, defect
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, Service, Snapshot, by_age
from nodeagent.plan.balancers.this_node import own_addresses

_NEVER: Sequence[tuple[IPNetwork, str]] = tuple(
    (ip_network(text), f"it {what}")
    for text, what in (
        # IANA's special-purpose address registries (RFC 6890).
        ("0.0.0.0/8", "means this host (RFC 1122, 3.2.1.3)"),
        ("127.0.0.0/8", "is loopback"),
        ("169.254.0.0/16", "is link-local (RFC 3927): clouds serve their metadata there"),
        ("224.0.0.0/4", "is multicast"),
        ("240.0.0.0/4", "is reserved or broadcast (RFC 1112, 4)"),
        ("::/96", "is unspecified, loopback, or an embedded IPv4 address (RFC 4291, 2.5.5.1)"),
        ("::ffff:0:0/96", "is an embedded IPv4 address (RFC 4291, 2.5.5.2)"),
        ("64:ff9b::/96", "is an embedded IPv4 address (NAT64, RFC 6052)"),
        ("64:ff9b:1::/48", "is an embedded IPv4 address (NAT64, RFC 8215)"),
        ("2002::/16", "is an embedded IPv4 address (6to4, RFC 3056)"),
        ("fe80::/10", "is link-local"),
        ("fec0::/10", "is site-local (RFC 3879)"),
        ("::ffff:0:0:0/96", "is an embedded IPv4 address (IPv4-translated, RFC 2765)"),
        ("ff00::/8", "is multicast"),
        # Where clouds serve a node's credentials and their own DNS, in addition to link-local addresses.
        ("192.0.0.0/24", "is reserved for protocols (RFC 6890), and Oracle Cloud's metadata"),
        ("100.100.100.200/32", "is Alibaba Cloud's metadata"),
        ("fd00:100::100:200/128", "is Alibaba Cloud's metadata"),
        ("168.63.129.16/32", "is Azure's WireServer"),
        ("fd00:a9fe:a9fe::1/128", "is Akamai's metadata"),
        ("fd00:42::42/128", "is Scaleway's metadata"),
        ("fd00:c1::a9fe:a9fe/128", "is Oracle Cloud's metadata"),
        ("fd00:ec2::/32", "is AWS's metadata, DNS and credentials"),
        ("fd20:ce::254/128", "is Google Cloud's metadata"),
    )
)


class AddressRules:
    """The rules for one cluster, configuration and node. Pure.

    Ranges of Services are those of ServiceCIDR objects (KEP-1880, Kubernetes 1.33). The API of older clusters
    shows only the ClusterIPs of LoadBalancer Services, and `loadBalancers.refuse` is for the rest; manifests
    show all that are in them.

    Attributes:
        own: this node's addresses and the API server's; only a listed Service may publish one.
    """

    def __init__(self, snapshot: Snapshot, facts: Facts, config: Config) -> None:
        options, relay, node = config.load_balancers, config.relay, snapshot.node
        self.own = own_addresses(snapshot, facts)
        self._everywhere: tuple[tuple[IPNetwork, str], ...] = (
            *((network, "it is in the relay's own range") for network in (relay.ipv4, relay.ipv6)),
            *_NEVER,
            *((text.network, f"loadBalancers.refuse includes it ({text})") for text in options.refuse),
            *(
                (network, f"it is in the Service range {network}")
                for service_range in sorted(snapshot.service_ranges, key=lambda found: found.name)
                for network in service_range.networks
            ),
        )
        self._cluster_ips = {address for service in snapshot.services for address in service.cluster_ips}
        self._cluster_ips |= snapshot.other_cluster_ips
        if snapshot.relay_service is not None:
            self._cluster_ips |= set(snapshot.relay_service.cluster_ips)
        self._allowed = tuple(text.network for text in options.address_ranges)
        pods = (*(text.network for text in config.dnat.pod_cidrs), *(node.pod_cidrs if node else ()))
        self._here = tuple((network, f"it is in the pod range {network}") for network in pods)
        self._ip_mode = options.ip_mode
        self._short_circuited = facts.short_circuited

    def never(self, address: IPAddress) -> str | None:
        """Why no node redirects the address; None if no rule of all nodes forbids it."""
        reason = _covering(address, self._everywhere)
        if reason is not None:
            return reason
        if address in self._cluster_ips:
            return "it is the ClusterIP of a Service"
        if self._allowed and not any(address in network for network in self._allowed):
            return "loadBalancers.addressRanges does not include it"
        return None

    def obstacle(self, address: IPAddress, *, listed: bool) -> str | None:
        """Why this node does not redirect the address for a Service; None if it may."""
        reason = self.never(address) or _covering(address, self._here)
        if reason is None and not listed and address in self.own:
            return (
                "it is this node's own address or the API server's: if it is a load balancer's as well, list "
                "the Service in loadBalancers.services"
            )
        return reason

    def why_ip_mode_ignored(self, address: IPAddress) -> str | None:
        """Why `ipMode: Proxy` does not count for this address; None if it counts."""
        if self._ip_mode == "ignore":
            return "loadBalancers.ipMode is ignore"
        if self._ip_mode == "auto" and address in self._short_circuited:
            return "this node's own rules short-circuit it nevertheless"
        return None


def _covering(address: IPAddress, ranges: Iterable[tuple[IPNetwork, str]]) -> str | None:
    return next((reason for network, reason in ranges if address in network), None)


def by_precedence(services: Iterable[Service], config: Config) -> tuple[Service, ...]:
    """Return the Services that the administrator listed, then the oldest: a tenant can set neither. Pure."""
    listed = listed_paths(config)
    return tuple(sorted(services, key=lambda service: (service.ref.path not in listed, by_age(service))))


def listed_paths(config: Config) -> frozenset[str]:
    """`namespace/name` of each Service that `loadBalancers.services` names and `ignore` does not."""
    ignored = {entry.path for entry in config.load_balancers.ignore}
    return frozenset(entry.path for entry in config.load_balancers.services) - ignored


Publications = Mapping[IPAddress, tuple[tuple[ObjectRef, frozenset[int]], ...]]
"""The Services with TCP ports that publish each address, in order of precedence, with their ports: the same
on every node."""


def publications(services: Iterable[Service], listed: Iterable[str]) -> Publications:
    """Return what `services`, in order of precedence, publish; externalIPs only if in `listed`. Pure."""
    trusted = frozenset(listed)
    found: dict[IPAddress, list[tuple[ObjectRef, frozenset[int]]]] = {}
    for service in services:
        ports = frozenset(service.tcp_ports)
        if ports:
            for address in published_addresses(service, listed=service.ref.path in trusted):
                found.setdefault(address, []).append((service.ref, ports))
    return {address: tuple(each) for address, each in found.items()}


def owner(published: Publications, endpoint: Endpoint) -> ObjectRef:
    """Return the Service to which the address and port belong. Raises KeyError if none publishes them."""
    for ref, ports in published[endpoint.address]:
        if endpoint.port in ports:
            return ref
    raise KeyError(endpoint)


def first_at(published: Publications, address: IPAddress) -> ObjectRef | None:
    """Return the Service that hostnames at this address belong to; None if it is no Service's."""
    found = published.get(address)
    return found[0][0] if found else None


def published_addresses(service: Service, *, listed: bool) -> tuple[IPAddress, ...]:
    """Return the addresses of the status, and of a listed Service the externalIPs, in this order."""
    return tuple(dict.fromkeys((*service.load_balancer_ips, *(service.external_ips if listed else ()))))


def own_hostnames(services: Iterable[Service], config: Config) -> Mapping[ObjectRef, tuple[str, ...]]:
    """Return the hostnames by which load balancers are served that publish nothing else. Pure.

    An administrator has to switch it on for each: what DNS answers for such a hostname verifies others.
    """
    options = config.load_balancers
    paths = {entry.path for entry in options.services if entry.hostname_only}
    paths -= {entry.path for entry in options.ignore}
    found: dict[ObjectRef, tuple[str, ...]] = {}
    for service in services if paths else ():
        if service.ref.path in paths and not published_addresses(service, listed=True):
            names = {canonical(point.hostname) for point in service.points if point.hostname}
            usable = sorted(name for name in names if defect(name) is None)
            if usable:
                found[service.ref] = tuple(usable[: config.limits.addresses_per_service])
    return found


def obstacle(match: Endpoint, ref: ObjectRef, published: Publications, facts: Facts) -> str | None:
    """Why traffic for `match` must not be redirected for the Service `ref`; None if nothing forbids it.

    The API server's own endpoint is never redirected, whatever a Service's status says: that would disconnect
    the node's kubelet.
    """
    if match in facts.api_servers:
        return f"{match}: never redirected: it is the API server's own address and port"
    other = owner(published, match)
    if other != ref:
        return (
            f"{match}: left to {other}, which is listed or older and publishes the same address and port; "
            "list a Service in loadBalancers.services to put it first"
        )
    return None
