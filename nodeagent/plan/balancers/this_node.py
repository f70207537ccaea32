"""What a node has: address families, addresses, pods; and which addresses it may redirect. Pure."""

import tomllib
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from pathlib import Path

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import FAMILIES, Endpoint, IPAddress, IPNetwork
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.identity.identify import cloud_of, identify

LOAD_BALANCER_INTERFACES = frozenset({"kube-ipvs0", "kube-dummy-if", "kube-lb0"})
"""Where kube-proxy (ipvs), kube-router and PureLB keep load balancers' addresses: they are not the node's."""

_TABLES = tomllib.loads(Path(__file__).with_name("node_tables.toml").read_text("utf-8"))
NODE_PORTS: Mapping[int, str] = {port: daemon for daemon, ports in _TABLES["ports"].items() for port in ports}
"""What listens by default on the ports that the daemons of a node bind."""
_NEVER_REDIRECTED = tuple(
    (ip_network(cidr), f"it {reason}") for cidr, reason in _TABLES["never_redirected"].items()
)
_POD_INTERFACES = {
    name: (row["ranges"], row["shown_by"]) for row in _TABLES["pod_ranges"] for name in row["interfaces"]
}
"""For each interface of a network plugin: what to set instead of the Node's ranges, and what shows it."""


def unsupported_families(snapshot: Snapshot, facts: Facts) -> Mapping[int, str]:
    """Return each family that this node does not support, with the reason. Pure.

    A node supports a family in which it has an address of its own: on an interface, in its Node object, among
    its pods' ranges, or as the source of its connections. Loopback and link-local addresses are not enough,
    nor are the relay's own: as its only one, the kernel would use that as the source of other traffic
    (RFC 6724, rule 2). If the interfaces show no address, nothing is known, and both count as supported.
    """
    on_interfaces: set[int] = {
        standing.address.version
        for standing in facts.addresses
        if not (standing.ours or standing.address.is_loopback or standing.address.is_link_local)
        if not standing.address.is_multicast
    }
    elsewhere: set[int] = {address.version for address in facts.source_addresses}
    if snapshot.node is not None:
        elsewhere |= {entry.version for entry in (*snapshot.node.addresses, *snapshot.node.pod_cidrs)}
    supported = on_interfaces | elsewhere if on_interfaces else set(FAMILIES)
    if facts.ipv6_off:
        # The relay could have no address, whatever the node has, or the cluster recorded while IPv6 was on.
        supported.discard(6)
    reasons = {family: f"this node has no IPv{family} address of its own" for family in FAMILIES}
    if facts.ipv6_off:
        reasons[6] = f"IPv6 is switched off on this node ({facts.ipv6_off})"
    return {family: reasons[family] for family in FAMILIES if family not in supported}


def lacks_family(snapshot: Snapshot, facts: Facts, config: Config) -> bool:
    """Whether a load balancer that sends PROXY has an address of a family that this node does not support."""
    unsupported = unsupported_families(snapshot, facts)
    provider_id = cloud_of(snapshot)
    return any(
        identify(service, config.load_balancers, provider_id).proxy
        for service in snapshot.services
        if any(address.version in unsupported for address in service.load_balancer_ips)
    )


def doubtful_endpoints(snapshot: Snapshot, config: Config) -> frozenset[Endpoint]:
    """Return addresses and TCP ports of which only this node's own rules show if they are short-circuited.

    They are those in ipMode Proxy of load balancers that send PROXY.
    """
    if config.load_balancers.ip_mode != "auto":
        return frozenset()
    provider_id = cloud_of(snapshot)
    return frozenset(
        Endpoint(point.ip, port)
        for service in snapshot.services
        if any(point.ip_mode == "Proxy" for point in service.points)
        if identify(service, config.load_balancers, provider_id).proxy
        for point in service.points
        if point.ip is not None and point.ip_mode == "Proxy"
        for port in service.tcp_ports
    )


def own_addresses(snapshot: Snapshot, facts: Facts) -> frozenset[IPAddress]:
    """Return the node's and the API server's addresses.

    An address that is alone in its network (/32, /128) and that is neither the Node's nor the source of
    outgoing connections is a load balancer's: kube-vip and keepalived put them on the interface of one node.
    """
    own = {endpoint.address for endpoint in facts.api_servers} | set(facts.source_addresses)
    own |= set(snapshot.node.addresses if snapshot.node else ())
    external = snapshot.node.external_addresses if snapshot.node else ()
    own |= {
        standing.address
        for standing in facts.addresses
        if not standing.ours
        and standing.interface not in LOAD_BALANCER_INTERFACES
        and (standing.prefix_length < standing.address.max_prefixlen or standing.address in external)
    }
    return frozenset(own)


def in_use(relay: IPNetwork, snapshot: Snapshot, facts: Facts, config: Config) -> str:
    """Return what else is in the relay's range, whose connections the guard would drop; empty: nothing."""
    node = snapshot.node
    pods = (*(cidr.network for cidr in config.dnat.pod_cidrs), *(node.pod_cidrs if node else ()))
    services = [network for service_range in snapshot.service_ranges for network in service_range.networks]
    cluster_ips = (address for service in snapshot.services for address in service.cluster_ips)
    if any(network.overlaps(relay) for network in pods):
        return "pods"
    if any(network.overlaps(relay) for network in services) or any(ip in relay for ip in cluster_ips):
        return "ClusterIPs of Services"
    # A kubelet may have taken one for its own.
    ours = {standing.address for standing in facts.addresses if standing.ours}
    if any(address in relay and address not in ours for address in (node.addresses if node else ())):
        return "this node's own address"
    return "the API server" if any(server.address in relay for server in facts.api_servers) else ""


class AddressRules:
    """Which addresses may be redirected, by one cluster, configuration and node. Pure.

    Some never are, whatever a Service's status or externalIPs say: a status is text that anyone may have
    written. On the rules that are the same on every node, relay addresses depend. `ipMode: Proxy` does not
    always count: a data plane that does not know it short-circuits the address anyway. kube-proxy honors it
    since Kubernetes 1.30 (KEP-1860); others followed later, or don't (docs/decisions/0012).

    Ranges of Services are those of ServiceCIDR objects (KEP-1880, Kubernetes 1.33). The API of older clusters
    shows only the ClusterIPs of LoadBalancer Services; `loadBalancers.refuse` is for the rest.

    Attributes:
        own: this node's addresses and the API server's; only a listed Service may publish one.
    """

    def __init__(self, snapshot: Snapshot, facts: Facts, config: Config) -> None:
        options, relay, node = config.load_balancers, config.relay, snapshot.node
        self.own = own_addresses(snapshot, facts)
        self._everywhere: tuple[tuple[IPNetwork, str], ...] = (
            *((network, "it is in the relay's own range") for network in (relay.ipv4, relay.ipv6)),
            *_NEVER_REDIRECTED,
            *((cidr.network, f"loadBalancers.refuse includes it ({cidr})") for cidr in options.refuse),
            *(
                (network, f"it is in the Service range {network}")
                for service_range in sorted(snapshot.service_ranges, key=lambda cidr: cidr.name)
                for network in service_range.networks
            ),
        )
        self._cluster_ips = {address for service in snapshot.services for address in service.cluster_ips}
        self._cluster_ips |= snapshot.other_cluster_ips
        if snapshot.relay_service is not None:
            self._cluster_ips |= set(snapshot.relay_service.cluster_ips)
        self._allowed = tuple(cidr.network for cidr in options.address_ranges)
        pods = (*(cidr.network for cidr in config.dnat.pod_cidrs), *(node.pod_cidrs if node else ()))
        self._here = tuple((network, f"it is in the pod range {network}") for network in pods)
        self._ip_mode = options.ip_mode
        self._short_circuited = facts.short_circuited

    def never(self, address: IPAddress) -> str | None:
        """Why no node redirects the address; None if no rule of all nodes forbids it."""
        if reason := _covering(address, self._everywhere):
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


class PodRanges(Struct, frozen=True):
    """This node's pods: which are redirected, and which may reach the relay.

    No others are redirected: their traffic may carry the PROXY header already. Pods may reach the relay only
    if DNAT or CoreDNS leads them there: HAProxy connects as the node does, which network policies admit.
    """

    redirected: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()
    remarks: tuple[str, ...] = ()


def pod_ranges(snapshot: Snapshot, facts: Facts, config: Config) -> PodRanges:
    """Return the ranges of `dnat.podCIDRs`, or else the Node's, and notes on pods that nothing serves."""
    if not facts.node_name:
        return PodRanges()  # a plan for no node has nothing to say of its pods
    why = ""
    if config.dnat.backend == "none":
        why = "dnat.backend is none, and lines of the hosts file serve the node alone"
    elif not config.dnat.pods:
        why = "dnat.pods is false"
    if why and not config.coredns.serves_pods:
        unserved = (
            f"pods are not served, cert-manager among them: {why}. CoreDNS can serve them (docs/coredns.md; "
            "the cilium overlay brings it); coredns.servesPods: true says that it does"
        )
        return PodRanges(remarks=(unserved,))
    networks: Iterable[IPNetwork] = [cidr.network for cidr in config.dnat.pod_cidrs]
    if not networks and snapshot.node is not None:
        networks = snapshot.node.pod_cidrs
    if not networks:
        remark = (
            f"this node's pods are not served: no pod range of node {facts.node_name!r} is known "
            "(its Node object is missing or has no spec.podCIDRs); set dnat.podCIDRs"
        )
        if why:
            remark = (
                "the guard drops this node's pods' connections to the relay, to which CoreDNS sends them: no "
                f"pod range of node {facts.node_name!r} is known (no spec.podCIDRs, or no Node object); set "
                "dnat.podCIDRs"
            )
        return PodRanges(remarks=(remark,))
    ipv4 = collapse_addresses(network for network in networks if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in networks if isinstance(network, IPv6Network))
    admitted: tuple[IPNetwork, ...] = (*ipv4, *ipv6)
    return PodRanges(() if why else admitted, admitted, _outside(facts, admitted))


def _outside(facts: Facts, admitted: Iterable[IPNetwork]) -> tuple[str, ...]:
    """Return what contradicts these ranges: an address that the network plugin took from the pods'."""
    outside: dict[str, list[str]] = {}
    for standing in facts.addresses:
        if standing.interface not in _POD_INTERFACES or standing.address.is_link_local:
            continue
        if not any(standing.address in network for network in admitted):
            outside.setdefault(standing.interface, []).append(str(standing.address))
    return tuple(
        f"{interface} has {', '.join(sorted(addresses))}, outside of this node's known pod ranges "
        f"({', '.join(map(str, admitted))}): pods with such addresses are not served, and the guard drops "
        f"them. Set dnat.podCIDRs to {_POD_INTERFACES[interface][0]}: {_POD_INTERFACES[interface][1]}"
        for interface, addresses in sorted(outside.items())
    )
