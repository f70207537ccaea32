"""Every option: default and meaning. The file's keys are these names in camelCase."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from nodeagent.config.option_types import (
    AbsolutePath,
    AddressRange,
    DnsName,
    DnsServer,
    InterfaceName,
    InterfacePattern,
    PodNetwork,
    PortNumber,
    PortRange,
    RelayRange4,
    RelayRange6,
    TelemetryAddress,
)


class ServiceName(Struct, frozen=True):
    """A Service by namespace and name."""

    namespace: DnsName
    name: DnsName

    @property
    def path(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class ProxyService(ServiceName, frozen=True, rename="camel"):
    """A Service whose load balancer is known to send the PROXY header, and the version of it.

    Attributes:
        ports: The Service's ports on which it does so; empty means every TCP port.
        hostname_only: Whether it is served even if its status has only a hostname: what DNS answers for that
            verifies hostnames, which lead to the relay. Nothing is redirected.
    """

    proxy_protocol: Literal["v1", "v2"] = "v1"
    ports: tuple[PortNumber, ...] = ()
    hostname_only: bool = False


class ClassService(ServiceName, frozen=True, rename="camel"):
    """The Service whose load balancer serves the Ingresses of a class.

    Attributes:
        ingress_class: The name of an IngressClass, or the controller of IngressClasses
            (`k8s.io/ingress-nginx`).
    """

    ingress_class: str = field(name="class")


class LoadBalancerOptions(Struct, frozen=True, rename="camel"):
    """Which LoadBalancer Services send the PROXY header.

    Attributes:
        detect: Whether to detect them by annotations: the providers', and `nodeagent.io/proxy-protocol`.
        services: Services that count as PROXY, regardless of their annotations.
        ip_mode: Whether `ipMode: Proxy` in a Service's status counts. `honor`: always. `auto`: unless this
            node's own rules show that the address is short-circuited anyway. `ignore`: for data planes
            that don't honor it and have no rules that nodeagent can read.
        ignore: Services that nodeagent ignores; overrides `services`.
        address_ranges: If set, the complete list of what can be redirected.
        refuse: Never redirected, in addition to the built-in list: Service ranges that the API server does
            not report, other nodes' pods.
        allow_ports: Ports that are relayed even though daemons on nodes commonly listen on them, such as 22.
        node_port_range: kube-apiserver's `--service-node-port-range`, which can't be read. kube-proxy binds
            ports in it, so they need `allowPorts` to be relayed.
        ingress_classes: Which Service serves an IngressClass, or a controller of IngressClasses
            (`k8s.io/ingress-nginx`); used for Ingresses whose status is empty.
    """

    detect: bool = True
    services: tuple[ProxyService, ...] = ()
    ip_mode: Literal["auto", "honor", "ignore"] = "auto"
    ignore: tuple[ServiceName, ...] = ()
    address_ranges: tuple[AddressRange, ...] = ()
    refuse: tuple[AddressRange, ...] = ()
    allow_ports: tuple[PortNumber, ...] = ()
    node_port_range: PortRange = PortRange("30000-32767")
    ingress_classes: tuple[ClassService, ...] = ()


class RelayOptions(Struct, frozen=True, rename="camel"):
    """The relay that adds the PROXY header.

    Attributes:
        kind: `node`: HAProxy on this node. `service`: an existing relay Service.
        launch: With `kind: node`: start HAProxy as a child process (testbed, manual use). Otherwise, the
            DaemonSet `nodeagent-relay` runs it; its pods' directories are in `runDir`/relay.
        interface: The dummy device that holds the relay addresses; `lo` if the kernel has no such devices.
        ipv4: Range of the relay addresses, /16 to /29: the same on every node, used by nothing else.
        ipv6: The same for IPv6, /64 to /125.
        run_dir: The agent's state, and the directories of relay pods.
        service: With `kind: service`: the relay Service.
        max_connections: Connections of all clients. An eighth is reserved for the node itself, and half of
            that for its root. Each takes two of HAProxy's file descriptors, and up to 33 kB.
        max_connections_per_listener: Connections to one port of a load balancer; beyond that, only the node
            gets more. Of both limits, a client address (a pod) can have an eighth of what is free.
        threads: HAProxy's threads. 0: a quarter of the node's processors, at least one and at most four.
    """

    kind: Literal["node", "service"] = "node"
    launch: bool = False
    interface: InterfaceName = InterfaceName("hairpin0")
    ipv4: RelayRange4 = RelayRange4("169.254.66.0/24")
    ipv6: RelayRange6 = RelayRange6("fd68:6169:7270::/112")
    run_dir: AbsolutePath = AbsolutePath("/run/nodeagent")
    service: ServiceName = ServiceName(DnsName("hairpin-proxy"), DnsName("hairpin-proxy"))
    max_connections: Annotated[int, Meta(ge=100, le=500_000)] = 8000
    max_connections_per_listener: Annotated[int, Meta(ge=1, le=500_000)] = 4000
    threads: Annotated[int, Meta(ge=0, le=64)] = 0

    @property
    def existing_service(self) -> tuple[str, str] | None:
        """Namespace and name of the relay Service to read; None if the node relays itself."""
        return (self.service.namespace, self.service.name) if self.kind == "service" else None


class DnatOptions(Struct, frozen=True, rename="camel"):
    """The DNAT rules that send traffic for a load balancer to the relay.

    Attributes:
        backend: `nftables`, `iptables` (the legacy tables), or `auto`: the former if the kernel and nft
            support it. `none`: no redirects; only hosts lines serve the node, and the only rules are those
            that guard the relay.
        pods: Whether to serve this node's pods, in addition to its own processes.
        pod_cidrs: This node's pod ranges; empty means `spec.podCIDRs` of its Node object.
        interfaces: Connections of pods count only if they arrive on one of these (`cni0`, `cali*`); empty
            means any interface.
    """

    backend: Literal["auto", "nftables", "iptables", "none"] = "auto"
    pods: bool = True
    pod_cidrs: tuple[PodNetwork, ...] = field(default=(), name="podCIDRs")
    interfaces: tuple[InterfacePattern, ...] = ()


class HostsOptions(Struct, frozen=True, rename="camel"):
    """The managed block of the hosts file.

    Attributes:
        enabled: Whether hostnames are written at all. If not, agents watch nothing that claims them.
        file: The node's hosts file; in a container, below the mount of the node's /etc.
        verify: `dns`: a hostname is written if upstream DNS verifies it or `allow` covers it. `allow`: only
            the latter.
        allow: Suffixes trusted without verification: `corp.example.com` covers itself and all hostnames below
            it.
        exclude: Suffixes that are never written; overrides `allow`.
        dns_servers: Servers queried for verification (`192.0.2.53:5353`); empty means those of the node's
            resolv.conf, next to `file`.
        dns_recheck_seconds: A hostname is verified again after this time, then after as long as it has stayed
            the same, up to an hour. It is withdrawn after twice this time, if DNS still denies it.
        cluster_domain: Hostnames at or below it belong to the cluster's own DNS and are never written.
    """

    enabled: bool = True
    file: AbsolutePath = AbsolutePath("/etc/hosts")
    verify: Literal["dns", "allow"] = "dns"
    allow: tuple[DnsName, ...] = ()
    exclude: tuple[DnsName, ...] = ()
    dns_servers: tuple[DnsServer, ...] = ()
    dns_recheck_seconds: Annotated[int, Meta(ge=1, le=3600)] = 30
    cluster_domain: DnsName = DnsName("cluster.local")


class CoreDnsOptions(Struct, frozen=True, rename="camel"):
    """Hostnames for pods through CoreDNS: what `nodeagent coredns` reads and writes.

    The agents read only `serves_pods`.

    Attributes:
        serves_pods: Whether `nodeagent coredns run` serves this cluster's pods, as in the cilium overlay. It
            starts nothing: without it, plan, status and doctor warn where DNAT does not serve pods.
        mode: `corefile`: a block in the Corefile. `import`: a key of `importConfigMap`, which the Corefile
            imports. `auto`: the latter if the Corefile does so and that ConfigMap exists.
        namespace: The namespace of all three ConfigMaps.
        config_map: Holds the Corefile.
        import_config_map: Holds files that the Corefile imports; never created, never removed.
        node_local_config_map: Holds NodeLocal DNSCache's Corefile, if there is one.
        max_bytes: Maximum size of nodeagent's block in a ConfigMap; the API accepts 1 MiB in all. Hostnames
            beyond it are left out; each namespace has its fair share.
    """

    serves_pods: bool = False
    mode: Literal["auto", "corefile", "import"] = "auto"
    namespace: DnsName = DnsName("kube-system")
    config_map: DnsName = DnsName("coredns")
    import_config_map: DnsName = DnsName("coredns-custom")
    node_local_config_map: DnsName = DnsName("node-local-dns")
    max_bytes: Annotated[int, Meta(ge=0, le=1_000_000)] = 524_288


_Limit = Annotated[int, Meta(ge=1, le=1_000_000)]


class LimitOptions(Struct, frozen=True, rename="camel"):
    """How much of the node's capacity can be used. The oldest objects come first; others are refused.

    Services that `loadBalancers.services` lists come before all others, and only `listeners` limits them.

    Attributes:
        listeners: The relay's, in total: one for each TCP port and address family, or eight addresses.
        listeners_per_namespace: Listeners for Services of one namespace.
        load_balancers_per_namespace: Services of one namespace that have a relay address.
        ports_per_service: TCP ports of one Service.
        addresses_per_service: Addresses that one Service publishes.
        hostnames: Hostnames written or verified by DNS, in total.
        hostnames_per_namespace: Hostnames claimed by objects of one namespace. Each line of the hosts file
            makes every lookup of a name on the node a little slower: 1,000 lines by 0.13 ms.
    """

    listeners: _Limit = 1000
    listeners_per_namespace: _Limit = 400
    load_balancers_per_namespace: _Limit = 32
    ports_per_service: _Limit = 64
    addresses_per_service: _Limit = 256
    hostnames: _Limit = 20_000
    hostnames_per_namespace: _Limit = 1000


class TelemetryOptions(Struct, frozen=True, rename="camel"):
    """What `nodeagent run` reports about itself: /healthz, /readyz, /metrics.

    Attributes:
        listen: Address and port of the HTTP server; empty switches it off. It requires no password: anyone
            who can reach the address can read hostnames and errors of this node.
    """

    listen: TelemetryAddress = TelemetryAddress("127.0.0.1:9467")


class Config(Struct, frozen=True, rename="camel"):
    """The whole configuration; every option has a default."""

    load_balancers: LoadBalancerOptions = LoadBalancerOptions()
    relay: RelayOptions = RelayOptions()
    dnat: DnatOptions = DnatOptions()
    hosts: HostsOptions = HostsOptions()
    limits: LimitOptions = LimitOptions()
    coredns: CoreDnsOptions = CoreDnsOptions()
    telemetry: TelemetryOptions = TelemetryOptions()
