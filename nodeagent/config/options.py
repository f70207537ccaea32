"""Every option: default, meaning, check. The file's keys are these names in camelCase."""

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from msgspec import Meta, Struct, field

from nodeagent.model.addresses import Endpoint, IPNetwork
from nodeagent.model.facts import HOSTNAME, LONGEST_HOSTNAME

DNS_PORT = 53
PortNumber = Annotated[int, Meta(ge=1, le=65535)]


class DnsName(str):
    """A DNS name of one or more labels in lower case, without a wildcard or a final dot (RFC 1123)."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the name, or ValueError with what to write instead."""
        if text.startswith((".", "*.")):
            raise ValueError(f"{text!r}: write it without the leading {text[: text.index('.') + 1]!r}")
        if len(text) > LONGEST_HOSTNAME or not re.fullmatch(HOSTNAME, text):
            raise ValueError(f"{text!r} is not a DNS name in lower case (example: corp.example.com)")
        return cls(text)


class InterfaceName(str):
    """The name of a network interface."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the name, or ValueError.

        The kernel takes 1 to 15 bytes without slash or space (dev_valid_name).
        """
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,15}", text) or text in {".", ".."}:
            raise ValueError(f"{text!r} is not an interface name: 1 to 15 of the letters A-Z a-z 0-9 _ . -")
        return cls(text)


class AbsolutePath(PurePosixPath):
    """A path that starts at the root, so that its meaning does not change with the working directory."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the path, or ValueError for a relative one or one with a control character in it."""
        path = cls(text)
        if not path.is_absolute() or any(ord(letter) < 32 for letter in text):
            raise ValueError(f"{text!r} is not an absolute path")
        return path


class RelayRange4(IPv4Network):
    """The range that IPv4 relay addresses come out of."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range, or ValueError: from /16 (more are never needed) to /29 (six addresses)."""
        network = cls(text)
        if not 16 <= network.prefixlen <= 29 or network.is_loopback or network.is_multicast:
            raise ValueError(f"{text!r}: must be a range of /16 to /29, and neither loopback nor multicast")
        return network


class RelayRange6(IPv6Network):
    """The range that IPv6 relay addresses come out of."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range, or ValueError: from /64 to /125 (seven addresses)."""
        network = cls(text)
        if not 64 <= network.prefixlen <= 125 or "%" in text or network.is_loopback or network.is_multicast:
            raise ValueError(f"{text!r}: must be a range of /64 to /125, and neither loopback nor multicast")
        return network


class PodNetwork(str):
    """A range of pod addresses as text, checked: `10.244.1.0/24` or `fd00:10:244::/64`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range, or ValueError.

        One wider than any cluster's (/8, /32) would take in foreign traffic.
        """
        network = ip_network(text)
        if "%" in text or network.prefixlen < (8 if network.version == 4 else 32):
            raise ValueError(f"{text!r} is not a range of pod addresses")
        return cls(text)

    @property
    def network(self) -> IPNetwork:
        """The range as a network object of its family."""
        return ip_network(self)


class AddressRange(str):
    """A range of addresses as text, checked: `203.0.113.0/24`, `2001:db8::/32`, or one address."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the range.

        ValueError: text that is not a range, has host bits set, or names an interface.
        """
        if "%" in text:
            raise ValueError(f"{text!r} is not a range of addresses (examples: 203.0.113.0/24, 192.0.2.7)")
        ip_network(text)
        return cls(text)

    @property
    def network(self) -> IPNetwork:
        """The range as a network object of its family."""
        return ip_network(self)


class ListenAddress(str):
    """Where to listen, as text, checked: `127.0.0.1:9467`, `[::1]:9467`, or empty for nowhere."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address, or ValueError with what to write instead."""
        if not text:
            return cls(text)
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        try:
            address = ip_address(bare)
        except ValueError:
            address = None
        # A port is what a person types: no sign, no leading zero, no other script's digits.
        if address is None or (address.version == 6) is (bare == host) or "%" in bare:
            raise ValueError(
                f"{text!r} is not an address and port (examples: 127.0.0.1:9467, '[::1]:9467', '' for none)"
            )
        if not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
            raise ValueError(f"{text!r}: the port must be a number from 1 to 65535")
        return cls(text)

    @property
    def endpoint(self) -> Endpoint | None:
        """The address and port; None for nowhere."""
        if not self:
            return None
        host, _, port = self.rpartition(":")
        return Endpoint(ip_address(host.strip("[]")), int(port))


class DnsServer(str):
    """A DNS server as text, checked: `192.0.2.53`, `2001:db8::53`, or with a port: `192.0.2.53:5353`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the server, or ValueError with what to write instead."""
        server = cls(text)
        try:
            _ = server.endpoint
        except ValueError:
            raise ValueError(
                f"{text!r} is not a DNS server's address (examples: 192.0.2.53, '192.0.2.53:5353', "
                "'[2001:db8::53]:5353')"
            ) from None
        return server

    @property
    def endpoint(self) -> Endpoint:
        """The address and port, 53 where none is given. Raises ValueError for text that was not parsed."""
        try:
            return Endpoint(ip_address(str(self)), DNS_PORT)
        except ValueError:
            found = ListenAddress.parse(self).endpoint
            if found is None:
                raise
            return found


class ServiceName(Struct, frozen=True):
    """A Service by namespace and name."""

    namespace: DnsName
    name: DnsName

    @property
    def path(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class ProxyService(ServiceName, frozen=True, rename="camel"):
    """A Service whose load balancer is known to send the PROXY header, and the version of it."""

    proxy_protocol: Literal["v1", "v2"] = "v1"
    ports: tuple[PortNumber, ...] = ()
    """The Service's ports on which it does so; empty means every TCP port."""


class ClassService(ServiceName, frozen=True, rename="camel"):
    """The Service whose load balancer serves the Ingresses of a class."""

    ingress_class: str = field(name="class")
    """The name of an IngressClass, or the controller of IngressClasses (`k8s.io/ingress-nginx`)."""


class ControllerConfigMap(ServiceName, frozen=True, rename="camel"):
    """The ConfigMap of an ingress controller that says whether the controller requires the PROXY header."""

    service: ServiceName | None = None
    """The controller's Service; default: the one with the ConfigMap's namespace and name."""
    key: str = "use-proxy-protocol"
    """The key whose value, `true` or `false`, says so (`proxy-protocol` for F5's controller)."""
    proxy_protocol: Literal["v1", "v2"] = "v1"
    """The version of the header that its load balancer sends."""
    ports: tuple[PortNumber, ...] = ()
    """The Service's ports on which it does so; empty means every TCP port."""

    @property
    def service_path(self) -> str:
        """`namespace/name` of the Service."""
        return (self.service or self).path


class LoadBalancerOptions(Struct, frozen=True, rename="camel"):
    """Which LoadBalancer Services send the PROXY header."""

    detect: bool = True
    """Whether to detect them by annotations: the providers', and `nodeagent.io/proxy-protocol`."""
    services: tuple[ProxyService, ...] = ()
    """Services that count as PROXY, regardless of their annotations."""
    controller_config_maps: tuple[ControllerConfigMap, ...] = ()
    """The settings of the ingress controller itself, for Services without such an annotation. No other
    ConfigMaps are read."""
    ip_mode: Literal["auto", "honor", "ignore"] = "auto"
    """Whether `ipMode: Proxy` in a Service's status is believed. `auto`: unless this node's own rules show
    that the address is short-circuited all the same. `ignore`: for data planes that don't honor it and have
    no rules that nodeagent can read."""
    ignore: tuple[ServiceName, ...] = ()
    """Services that nodeagent ignores, even if something else says that they send PROXY."""

    address_ranges: tuple[AddressRange, ...] = ()
    """If set, only addresses in these ranges can be redirected."""
    refuse: tuple[AddressRange, ...] = ()
    """Ranges that are never redirected, in addition to the built-in ones: Service ranges that the API
    server does not report, other nodes' pods."""
    allow_ports: tuple[PortNumber, ...] = ()
    """Ports that are relayed even though daemons on nodes commonly listen on them (22, 179, 9100, ...)."""

    @property
    def config_map_names(self) -> tuple[tuple[str, str], ...]:
        """Namespace and name of every ConfigMap that is to be read."""
        return tuple((entry.namespace, entry.name) for entry in self.controller_config_maps)

    ingress_classes: tuple[ClassService, ...] = ()
    """Which Service serves an IngressClass; used for Ingresses whose status is empty."""


class RelayOptions(Struct, frozen=True, rename="camel"):
    """The relay that adds the PROXY header."""

    kind: Literal["node", "service"] = "node"
    """`node`: HAProxy on this node. `service`: an existing relay Service."""
    launch: bool = False
    """With `kind: node`: start HAProxy as a child process (testbed, manual use). Otherwise, nodeagent uses
    the HAProxy whose master socket is in `haproxyDir`: the sidecar's."""
    interface: InterfaceName = InterfaceName("hairpin0")
    """The dummy device that holds the relay addresses; if the kernel has no such devices, `lo` is used."""
    ipv4: RelayRange4 = RelayRange4("169.254.66.0/24")
    """Range of the relay addresses; nothing else on the nodes may use it."""
    ipv6: RelayRange6 = RelayRange6("fd68:6169:7270::/112")
    """The same for IPv6."""
    run_dir: AbsolutePath = AbsolutePath("/run/nodeagent")
    """Directory for the agent's state, above all the node lock. All agents of a node (an upgrade's two pods)
    share it."""
    haproxy_dir: AbsolutePath | None = None
    """Directory for haproxy.cfg and HAProxy's sockets; default: `runDir`. Two pods that share `runDir` need
    one each: otherwise their HAProxies overwrite each other's sockets."""
    service: ServiceName = ServiceName(DnsName("hairpin-proxy"), DnsName("hairpin-proxy"))
    """With `kind: service`: the relay Service."""
    max_connections: Annotated[int, Meta(ge=100, le=500_000)] = 8000
    """Maximum number of connections through the relay. An eighth of them is reserved for the node itself.
    Each takes two of HAProxy's file descriptors, whose hard limit must suffice, and up to 33 kB."""
    max_connections_per_listener: Annotated[int, Meta(ge=1, le=500_000)] = 4000
    """Of these, how many one port of a load balancer can have; beyond that, only the node gets more."""
    max_connections_per_client: Annotated[int, Meta(ge=1, le=500_000)] = 1000
    """Of these, how many one client address (a pod's) can have. The node itself is exempt."""
    threads: Annotated[int, Meta(ge=0, le=64)] = 0
    """Number of HAProxy's threads. 0: a quarter of the node's processors, at least one and at most four."""
    idle_seconds: Annotated[int, Meta(ge=1, le=3600)] = 30
    """When a pod of the DaemonSet ends: connections that were idle for this long are closed."""
    drain_seconds: Annotated[int, Meta(ge=0, le=86_400)] = 270
    """When a pod of the DaemonSet ends: how long connections in use can continue. The pod's
    `terminationGracePeriodSeconds` must be 30 s longer."""

    @property
    def haproxy_directory(self) -> AbsolutePath:
        """Return the directory of haproxy.cfg and HAProxy's sockets."""
        return self.haproxy_dir or self.run_dir

    @property
    def existing_service(self) -> tuple[str, str] | None:
        """Namespace and name of the relay Service to read; None where the node relays itself."""
        return (self.service.namespace, self.service.name) if self.kind == "service" else None


class DnatOptions(Struct, frozen=True, rename="camel"):
    """The DNAT rules that send traffic for a load balancer to the relay."""

    backend: Literal["auto", "nftables", "iptables", "none"] = "auto"
    """`auto`: the best that this kernel supports. `none`: no redirects; hosts lines alone serve the node,
    and the only rules are those that guard the relay."""
    pods: bool = True
    """Whether to serve this node's pods, in addition to its own processes."""
    pod_cidrs: tuple[PodNetwork, ...] = field(default=(), name="podCIDRs")
    """This node's pod ranges; empty means `spec.podCIDRs` of its Node object."""


class HostsOptions(Struct, frozen=True, rename="camel"):
    """The managed block of the hosts file."""

    enabled: bool = True
    """Whether hostnames are written at all."""
    file: AbsolutePath = AbsolutePath("/etc/hosts")
    """Path of the node's hosts file for this process; in a container, below the mount of the node's /etc."""
    verify: Literal["dns", "allow"] = "dns"
    """`dns`: a hostname is written if upstream DNS confirms it or `allow` covers it. `allow`: only the
    latter."""
    allow: tuple[DnsName, ...] = ()
    """Suffixes trusted without verification: `corp.example.com` covers itself and all hostnames below it."""
    exclude: tuple[DnsName, ...] = ()
    """Suffixes that are never written; overrides `allow`."""
    dns_servers: tuple[DnsServer, ...] = ()
    """DNS servers to query for verification; empty means those of the node's own resolv.conf, next to
    `file`."""
    dns_recheck_seconds: Annotated[int, Meta(ge=1, le=3600)] = 30
    """A hostname is verified again when the TTL has expired, but not sooner than this. The wait doubles each
    time the answer is the same, up to ten minutes."""
    cluster_domain: DnsName = DnsName("cluster.local")
    """Hostnames at or below it belong to the cluster's own DNS and are never written."""


class CoreDnsOptions(Struct, frozen=True, rename="camel"):
    """Hostnames for pods through CoreDNS: what `nodeagent coredns` reads and writes.

    The agents read only `serves_pods`.
    """

    serves_pods: bool = False
    """Whether `nodeagent coredns run` serves this cluster's pods, as in the overlay cilium. It starts
    nothing: if DNAT does not serve pods, plan, status and doctor warn about that unless this is set."""
    mode: Literal["auto", "corefile", "import"] = "auto"
    """`corefile`: a block in the Corefile. `import`: a key of `importConfigMap`, which the Corefile imports.
    `auto`: the latter if the Corefile does so and that ConfigMap exists."""
    namespace: DnsName = DnsName("kube-system")
    """The namespace of all three ConfigMaps."""
    config_map: DnsName = DnsName("coredns")
    """ConfigMap with the Corefile, under the key `Corefile`."""
    import_config_map: DnsName = DnsName("coredns-custom")
    """ConfigMap with files that the Corefile imports. nodeagent never creates or removes it."""
    node_local_config_map: DnsName = DnsName("node-local-dns")
    """ConfigMap with the Corefile of NodeLocal DNSCache. If it does not exist, there is no such cache."""
    max_bytes: Annotated[int, Meta(ge=0, le=1_000_000)] = 524_288
    """Maximum size of nodeagent's block in a ConfigMap, in bytes; the API accepts 1 MiB in all. Hostnames
    beyond it are left out; each namespace has its fair share."""


_Limit = Annotated[int, Meta(ge=1, le=1_000_000)]


class LimitOptions(Struct, frozen=True, rename="camel"):
    """How much of the node's capacity can be used. The oldest objects come first; a skipped one has a reason.

    Services that `loadBalancers.services` lists come before all others, and only `listeners` limits them.
    """

    listeners: _Limit = 1000
    """The relay's listeners for all Services together. One port of one address family is one listener."""
    listeners_per_namespace: _Limit = 400
    """The listeners for Services of one namespace."""
    load_balancers_per_namespace: _Limit = 32
    """The Services of one namespace that have a relay address."""
    ports_per_service: _Limit = 64
    """The TCP ports of one Service."""
    addresses_per_service: _Limit = 256
    """The addresses that one Service publishes."""
    hostnames: _Limit = 20_000
    """The hostnames that are written, or verified by DNS, in total."""
    hostnames_per_namespace: _Limit = 5000
    """The hostnames that objects of one namespace can claim."""


class TelemetryOptions(Struct, frozen=True, rename="camel"):
    """What `nodeagent run` reports about itself: /healthz, /readyz, /metrics."""

    listen: ListenAddress = ListenAddress("127.0.0.1:9467")
    """Address and port of the HTTP server; empty switches it off. The socket in `runDir` for probes stays.
    It requires no password: anyone who can reach the address can read hostnames and errors of this node."""


class Config(Struct, frozen=True, rename="camel"):
    """The whole configuration; every option has a default."""

    load_balancers: LoadBalancerOptions = LoadBalancerOptions()
    relay: RelayOptions = RelayOptions()
    dnat: DnatOptions = DnatOptions()
    hosts: HostsOptions = HostsOptions()
    limits: LimitOptions = LimitOptions()
    coredns: CoreDnsOptions = CoreDnsOptions()
    telemetry: TelemetryOptions = TelemetryOptions()
