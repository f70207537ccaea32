"""Whose an address is, and what of a load balancer is to be relayed here."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress, canonical, defect
from nodeagent.model.decisions import Conclusion, refused, skipped
from nodeagent.model.objects import ObjectRef, Service, by_age
from nodeagent.plan.balancers.this_node import AddressRules
from nodeagent.plan.identity.identify import Identity


class Owners:
    """The Service to which each address and port belongs: the first of all that publish it. Pure.

    Whether it sends PROXY or not: what is plain for one must not become PROXY because of another one. First
    come those that the administrator listed, then the oldest, on every node: a tenant can set neither.

    Attributes:
        services: in this order.
        listed: `namespace/name` of each that `loadBalancers.services` names and `ignore` does not.
        hostnames: those by which load balancers are served, as `own_hostnames` returns them.
    """

    def __init__(self, services: Iterable[Service], config: Config) -> None:
        self.listed = listed_paths(config)
        self.services = tuple(
            sorted(services, key=lambda service: (service.ref.path not in self.listed, by_age(service)))
        )
        self.hostnames = own_hostnames(self.services, config)
        self._at: dict[IPAddress, list[tuple[ObjectRef, frozenset[int]]]] = {}
        for service in self.services:
            ports = frozenset(service.tcp_ports)
            for address in self.published(service):
                self._at.setdefault(address, []).append((service.ref, ports))

    def published(self, service: Service) -> tuple[IPAddress, ...]:
        """Return the addresses of the status, and of a listed Service the externalIPs, in this order."""
        external = service.external_ips if service.ref.path in self.listed else ()
        return tuple(dict.fromkeys((*service.load_balancer_ips, *external)))

    def owner(self, endpoint: Endpoint) -> ObjectRef | None:
        """Return the Service to which the address and port belong; None if none publishes them."""
        publishers = self._at.get(endpoint.address, ())
        return next((ref for ref, ports in publishers if endpoint.port in ports), None)

    def first_at(self, address: IPAddress) -> ObjectRef | None:
        """Return the Service that hostnames at this address belong to; None if none publishes it."""
        return next((ref for ref, _ in self._at.get(address, ())), None)

    def obstacle(self, match: Endpoint, ref: ObjectRef, api_servers: frozenset[Endpoint]) -> str | None:
        """Why traffic for `match` must not be redirected for the Service `ref`; None if nothing forbids it.

        To redirect the API server's own endpoint would disconnect the node's kubelet.
        """
        if match in api_servers:
            return f"{match}: never redirected: it is the API server's own address and port"
        owner = self.owner(match)
        if owner == ref:
            return None
        return (
            f"{match}: left to {owner}, which is listed or older and publishes the same address and port; "
            "list a Service in loadBalancers.services to put it first"
        )


def listed_paths(config: Config) -> frozenset[str]:
    """`namespace/name` of each Service that `loadBalancers.services` names and `ignore` does not."""
    ignored = {entry.path for entry in config.load_balancers.ignore}
    return frozenset(entry.path for entry in config.load_balancers.services) - ignored


def own_hostnames(services: Iterable[Service], config: Config) -> Mapping[ObjectRef, tuple[str, ...]]:
    """Return the hostnames by which load balancers are served that publish nothing else. Pure.

    An administrator switches it on for each: what DNS answers for such a hostname verifies others.
    """
    wanted = {entry.path for entry in config.load_balancers.services if entry.hostname_only}
    wanted &= listed_paths(config)
    hostnames: dict[ObjectRef, tuple[str, ...]] = {}
    for service in services if wanted else ():
        if service.ref.path in wanted and not (service.load_balancer_ips or service.external_ips):
            names = {canonical(point.hostname) for point in service.points if point.hostname}
            usable = sorted(name for name in names if defect(name) is None)
            if usable:
                hostnames[service.ref] = tuple(usable[: config.limits.addresses_per_service])
    return hostnames


class Unserved(Struct, frozen=True):
    """Why nothing of a load balancer is relayed, with notes; `taken` are those on ports that are held."""

    conclusion: Conclusion
    remarks: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


class Eligible(Struct, frozen=True):
    """What of a load balancer is to be relayed, by the cluster and the configuration.

    Attributes:
        addresses: those that are short-circuited. Only DNS knows those of one that is served by its hostname:
            it has its ClusterIPs here, and is not `redirected`.
        ports: the TCP ports on which it sends PROXY; `plain_ports`: its other TCP ports.
        wholly: hostnames, which carry every port, may lead to the relay: all are TCP, or it is listed.
    """

    addresses: tuple[IPAddress, ...]
    ports: tuple[int, ...]
    plain_ports: tuple[int, ...]
    remarks: tuple[str, ...]
    redirected: bool
    wholly: bool

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every address with every PROXY port."""
        return tuple(Endpoint(address, port) for address in self.addresses for port in self.ports)


_LOCAL_ONLY = (
    "internalTrafficPolicy is Local: on a node without a ready pod of it, its ClusterIP leads nowhere, and "
    "the relay's connections fail; set it to Cluster"
)
"""KEP-2086. kube-proxy's short-circuited path for the load balancer's address does not have this limit."""


def examine(service: Service, identity: Identity, owners: Owners, rules: AddressRules) -> Eligible | Unserved:
    """Return what of `service` to relay, or why nothing of it. Pure.

    On a port on which its load balancer sends no PROXY, kube-proxy's short-circuited path does no harm; but
    no hostname may lead to a relay that can't replace the TLS that ends at the load balancer on another one.
    """
    listed, own_names = service.ref.path in owners.listed, owners.hostnames.get(service.ref)
    addresses, about_addresses = _short_circuited(service, rules, listed=listed)
    remarks = (
        *service.problems,
        *about_addresses,
        *(
            f"port {port.port}/{port.protocol}: ignored, the PROXY header is only for TCP"
            for port in service.ports
            if port.protocol != "TCP"
        ),
        *((_LOCAL_ONLY,) if service.local_only else ()),
    )
    ports = service.tcp_ports
    if own_names:
        addresses = service.cluster_ips
        remark = (
            f"served by hostname ({', '.join(own_names)}): hosts lines lead the node to the relay, CoreDNS "
            "the pods; nothing is redirected"
        )
        remarks = (*remarks, remark)
    elif not addresses:
        return Unserved(_without_address(service, rules), remarks)
    if not service.ports:
        return Unserved(refused("NoPorts", "the Service has no ports"), remarks)
    if not service.cluster_ips:
        reason = "kube-proxy serves no ClusterIP of it: it has none, or the label service-proxy-name"
        return Unserved(refused("NoClusterIP", reason), remarks)
    not_plain = {*identity.versions, *identity.terminated}
    plain = tuple(port for port in ports if port not in not_plain)
    with_proxy = tuple(port for port in ports if port in identity.versions)
    wholly = not identity.terminated and (listed or all(port.protocol == "TCP" for port in service.ports))
    return Eligible(addresses, with_proxy, plain, remarks, redirected=not own_names, wholly=wholly)


def _short_circuited(
    service: Service, rules: AddressRules, *, listed: bool
) -> tuple[tuple[IPAddress, ...], list[str]]:
    """Return the addresses that are short-circuited, and notes on special ones.

    externalIPs, which anyone can write, count only of a listed Service; the node's and API servers' never.
    """
    usable: list[IPAddress] = []
    remarks: list[str] = []
    short_circuited = frozenset(service.short_circuited_ips)
    for point in service.points:
        if point.ip is None:
            continue
        if obstacle := rules.obstacle(point.ip, listed=listed):
            remarks.append(f"{point.ip}: not redirected: {obstacle}")
        elif point.ip in short_circuited:
            usable.append(point.ip)
        elif why := rules.why_ip_mode_ignored(point.ip):
            usable.append(point.ip)
            remarks.append(f"{point.ip}: ipMode Proxy, but {why}")
        else:
            remarks.append(f"{point.ip}: ipMode Proxy: kube-proxy does not short-circuit it")
    if service.external_ips and not listed:
        why = "externalIPs count only if loadBalancers.services lists the Service (CVE-2020-8554)"
        remarks.append(f"{', '.join(map(str, service.external_ips))}: ignored: {why}")
    for address in service.external_ips if listed else ():
        reason = "it is this node's own address or the API server's" if address in rules.own else None
        if obstacle := rules.obstacle(address, listed=True) or reason:
            remarks.append(f"{address}: an externalIP, not redirected: {obstacle}")
        else:
            usable.append(address)
    return tuple(dict.fromkeys(usable)), remarks


def _without_address(service: Service, rules: AddressRules) -> Conclusion:
    own = rules.own.intersection(service.load_balancer_ips)
    if any(rules.obstacle(address, listed=True) is None for address in own):
        reason = (
            "its addresses are this node's own or the API server's: if they are its load balancer's as well, "
            "list it in loadBalancers.services"
        )
        return refused("NodeAddress", reason)
    if any(point.ip_mode == "Proxy" for point in service.points if point.ip):
        return skipped("IPModeProxy", "ipMode Proxy: kube-proxy does not short-circuit its address")
    if service.load_balancer_ips or any("status.loadBalancer" in problem for problem in service.problems):
        return refused("BadAddress", "its status has no address that can be redirected: see nodeagent status")
    if service.points:
        hostname = service.points[0].hostname
        reason = (
            f"published by hostname ({hostname}): kube-proxy does not short-circuit it; if connections from "
            "nodes or pods fail nevertheless, list it in loadBalancers.services with hostnameOnly: true"
        )
        return skipped("HostnameOnly", reason)
    return skipped("NoAddress", "status.loadBalancer is empty: the provider has not assigned an address yet")


def supported_part(eligible: Eligible, unsupported: Mapping[int, str]) -> Eligible | Unserved:
    """Return what is eligible without addresses of unsupported families, with a note for each. Pure."""
    left_out = [address for address in eligible.addresses if address.version in unsupported]
    notes = (f"{address}: not relayed: {unsupported[address.version]}" for address in left_out)
    remarks = (*eligible.remarks, *notes)
    addresses = tuple(address for address in eligible.addresses if address not in left_out)
    if not addresses:
        reason = "this node supports none of its address families: see the notes"
        return Unserved(skipped("FamilyNotSupported", reason), remarks)
    return replace(eligible, addresses=addresses, remarks=remarks)
