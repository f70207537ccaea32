"""What a node has: address families, addresses, pods; and tables of what others have there. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import FAMILIES, Endpoint, IPAddress, IPNetwork
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.identity.identify import cloud_of, identify

LOAD_BALANCER_INTERFACES = frozenset({"kube-ipvs0", "kube-dummy-if", "kube-lb0"})
"""Where kube-proxy (ipvs), kube-router and PureLB keep load balancers' addresses: they are not the node's."""

_CILIUM = (
    "Cilium's ranges",
    "kubectl get ciliumnodes -o custom-columns=NODE:.metadata.name,PODS:.spec.ipam.podCIDRs",
)
_CALICO = ("Calico's pools", "kubectl get ippools -o custom-columns=POOL:.spec.cidr")
POD_INTERFACES: Mapping[str, tuple[str, str]] = {
    "cilium_host": _CILIUM,
    "tunl0": _CALICO,
    "vxlan.calico": _CALICO,
    "vxlan-v6.calico": _CALICO,
    "wireguard.cali": _CALICO,
}
"""Interfaces to which a network plugin gives an address of the node's own pods, by its own IPAM. Cilium's
cluster-pool and Calico's IPAM take no notice of spec.podCIDRs (projectcalico/calico#2592). With each:
what to set instead, and what shows it."""

NODE_PORTS: Mapping[int, str] = {
    # IANA, Service Name and Transport Protocol Port Number Registry.
    22: "SSH server",
    53: "DNS server",
    111: "rpcbind",
    179: "BGP daemon (Calico, Cilium, kube-router, MetalLB)",
    **dict.fromkeys((2375, 2376), "Docker"),
    # kubernetes/ingress-nginx, pkg/flags: healthz-port, in the host's network.
    10254: "ingress controller (health checks)",
    # kubernetes.io/docs/reference/networking/ports-and-protocols; 2381, 2382: k3s docs, "Local Ports".
    **dict.fromkeys((2379, 2380, 2381, 2382), "etcd"),
    6443: "API server",
    10257: "controller manager",
    10259: "scheduler",
    # kubernetes/kubernetes, pkg/cluster/ports; 10255: KubeletConfiguration, readOnlyPort.
    **dict.fromkeys((10248, 10250, 10255), "kubelet"),
    **dict.fromkeys((10249, 10256), "kube-proxy"),
    # kubernetes/cloud-provider, options/webhook.go (10260); OpenShift's registry, below (10263).
    **dict.fromkeys((10258, 10260), "cloud controller manager"),
    10263: "cloud node manager",
    # kubernetes/website, examples/admin/konnectivity.
    **dict.fromkeys((8132, 8133, 8134), "konnectivity server"),
    # k3s docs, installation/requirements; RKE2 docs, install/requirements.
    6444: "API server's load balancer (k3s, RKE2)",
    9345: "supervisor (k3s, RKE2)",
    10010: "container runtime",
    # openshift/enhancements, dev-guide/host-port-registry.md.
    9537: "CRI-O",
    **dict.fromkeys((9977, 9978, 9979), "etcd (OpenShift)"),
    **dict.fromkeys((9258, 9259), "cloud controller manager (OpenShift)"),
    **dict.fromkeys((8797, 22623, 22624), "machine configuration (OpenShift)"),
    **dict.fromkeys((10357, 11443, 17697), "control plane (OpenShift)"),
    # docs.cilium.io, operations/system_requirements, "Firewall Rules"; 9965: its chart, hubble.metrics.port.
    **dict.fromkeys((4240, 4244, 4245, 4250, 4251), "Cilium"),
    **dict.fromkeys((9878, 9879, 9890, 9891, 9893, 9901, 9962, 9963, 9964, 9965), "Cilium"),
    # docs.tigera.io, reference/felix/configuration (9091, 9099); projectcalico/calico, typha/pkg/config (9093
    # and 9098); RKE2 docs, install/requirements (5473).
    **dict.fromkeys((5473, 9091, 9093, 9098, 9099), "Calico"),
    # antrea.io/docs, network-requirements.
    **dict.fromkeys((10349, 10350, 10351), "Antrea"),
    # ovn-org/ovn-kubernetes, dist/images/ovnkube.sh; from 9102 on: OpenShift's registry, above.
    **dict.fromkeys((6641, 6642, 6643, 6644, 9310, 9409, 9410, 9476), "OVN-Kubernetes"),
    **dict.fromkeys((9102, 9103, 9641, 9642, 9643, 9644, 29101, 29102, 29103), "OVN-Kubernetes"),
    # weaveworks/weave: site/faq.md (6781, 6783), prog/weave-kube (6782, 6784).
    **dict.fromkeys((6781, 6782, 6783, 6784), "Weave Net"),
    # kube-router.io/docs/health; its routing controller and amazon-vpc-cni-k8s, cmd/aws-k8s-agent (50051).
    20244: "kube-router",
    50051: "network daemon (kube-router, AWS VPC CNI)",
    # amazon-vpc-cni-k8s, README: DISABLE_METRICS, INTROSPECTION_BIND_ADDRESS.
    **dict.fromkeys((61678, 61679), "AWS VPC CNI"),
    # metallb/metallb, config/controllers/speaker.yaml; frr-metrics: 7473 up to 0.15, 9121 since (config/frr).
    **dict.fromkeys((7472, 7473, 7946, 9121), "MetalLB"),
    # kube-vip/kube-vip, cmd: prometheusHTTPServer.
    2112: "kube-vip",
    # kubernetes/kubernetes, cluster/addons/dns/nodelocaldns (9253); kubernetes/dns, cmd/node-cache (9353).
    **dict.fromkeys((9253, 9353), "NodeLocal DNSCache"),
    # github.com/prometheus/prometheus/wiki/Default-port-allocations.
    9100: "node exporter",
    # kubernetes/node-problem-detector, cmd/options.
    **dict.fromkeys((20256, 20257), "node problem detector"),
    # daemonset/base: agent and relay.
    **dict.fromkeys((9467, 9468), "nodeagent"),
}
"""Ports that the daemons of a node bind, each with what listens there by default, and the source above it.

If a relay has one of them first, the program does not start (bind(2): EADDRINUSE), and anyone who can create
a Service could cause that. Ports that load balancers commonly publish are left out, even if a daemon has one:
80, 443, 3306, 5000, 5001, 6060, 8080, 9000, 9001, 9090, 9443 and 10443. Those, and other programs' ports, are
recognized by what already listens."""

NEVER_REDIRECTED: Sequence[tuple[IPNetwork, str]] = tuple(
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
"""Addresses that no node redirects, each with the reason."""


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
    told: set[int] = {address.version for address in facts.source_addresses}
    if snapshot.node is not None:
        told |= {one.version for one in (*snapshot.node.addresses, *snapshot.node.pod_cidrs)}
    spoken = on_interfaces | told if on_interfaces else set(FAMILIES)
    if facts.ipv6_off:
        # The relay could have no address, whatever the node has, or the cluster recorded while IPv6 was on.
        spoken.discard(6)
    reasons = {family: f"this node has no IPv{family} address of its own" for family in FAMILIES}
    if facts.ipv6_off:
        reasons[6] = f"IPv6 is switched off on this node ({facts.ipv6_off})"
    return {family: reasons[family] for family in FAMILIES if family not in spoken}


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
        each.address
        for each in facts.addresses
        if not each.ours
        and each.interface not in LOAD_BALANCER_INTERFACES
        and (each.prefix_length < each.address.max_prefixlen or each.address in external)
    }
    return frozenset(own)


def in_use(relay: IPNetwork, snapshot: Snapshot, facts: Facts, config: Config) -> str:
    """Return what else has addresses in the relay's range; empty for nothing.

    The guard drops what others send to the range, and no later chain translates it: a node would lose its
    network, its pods or its Services.
    """
    node = snapshot.node
    pods = (*(text.network for text in config.dnat.pod_cidrs), *(node.pod_cidrs if node else ()))
    services = [network for each in snapshot.service_ranges for network in each.networks]
    cluster_ips = (address for service in snapshot.services for address in service.cluster_ips)
    if any(network.overlaps(relay) for network in pods):
        return "pods"
    if any(network.overlaps(relay) for network in services) or any(each in relay for each in cluster_ips):
        return "ClusterIPs of Services"
    ours = {each.address for each in facts.addresses if each.ours}  # a kubelet may have taken one for its own
    if any(each in relay and each not in ours for each in (node.addresses if node else ())):
        return "this node's own address"
    return "the API server" if any(each.address in relay for each in facts.api_servers) else ""


class PodRanges(Struct, frozen=True):
    """This node's pods: which are redirected, and which may reach the relay.

    Only its own pods are redirected: traffic from elsewhere may carry the PROXY header already. They may
    reach the relay only if something leads them there, DNAT or CoreDNS: HAProxy connects as the node does,
    which network policies admit.
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
            "the overlay cilium brings it); coredns.servesPods: true says that it does"
        )
        return PodRanges(remarks=(unserved,))
    found: Iterable[IPNetwork] = [text.network for text in config.dnat.pod_cidrs]
    if not found and snapshot.node is not None:
        found = snapshot.node.pod_cidrs
    if not found:
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
    ipv4 = collapse_addresses(network for network in found if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in found if isinstance(network, IPv6Network))
    admitted: tuple[IPNetwork, ...] = (*ipv4, *ipv6)
    return PodRanges(() if why else admitted, admitted, _outside(facts, admitted))


def _outside(facts: Facts, admitted: Iterable[IPNetwork]) -> tuple[str, ...]:
    """Return what contradicts these ranges: an address that the network plugin took from the pods'."""
    found: dict[str, list[str]] = {}
    for each in facts.addresses:
        if each.interface not in POD_INTERFACES or each.address.is_link_local:
            continue
        if not any(each.address in network for network in admitted):
            found.setdefault(each.interface, []).append(str(each.address))
    return tuple(
        f"{interface} has {', '.join(sorted(addresses))}, outside of this node's known pod ranges "
        f"({', '.join(map(str, admitted))}): pods with such addresses are not served, and the guard drops "
        f"them. Set dnat.podCIDRs to {POD_INTERFACES[interface][0]}: {POD_INTERFACES[interface][1]}"
        for interface, addresses in sorted(found.items())
    )
