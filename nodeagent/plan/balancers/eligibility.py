"""Which addresses and TCP ports of a PROXY load balancer kube-proxy short-circuits: what to relay here.

`ipMode: Proxy` does not always count: a data plane that does not know it short-circuits the address anyway.
kube-proxy honors it since Kubernetes 1.30 (KEP-1860); others followed later, or don't (docs/decisions/0012).
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Conclusion, refused, skipped
from nodeagent.model.objects import Service
from nodeagent.plan.balancers.address_rules import AddressRules
from nodeagent.plan.identity.identify import LISTED, Identity


class Unserved(Struct, frozen=True):
    """Why nothing of a load balancer is relayed, with notes; `taken` are those on ports that are held."""

    conclusion: Conclusion
    remarks: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


class Eligible(Struct, frozen=True):
    """What of a load balancer is to be relayed, by the cluster and the configuration.

    Attributes:
        addresses: those that are short-circuited; of one that is served by its hostname its ClusterIPs, since
            only DNS knows its own.
        ports: the TCP ports on which it sends PROXY; `plain_ports`: its other TCP ports.
        redirected: false for one that is served by its hostname.
        wholly: whether hostnames, which carry every port with them, may lead to the relay: it has no other
            ports than TCP, or is listed.
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


def examine(
    service: Service, identity: Identity, rules: AddressRules, *, own_names: Sequence[str] = ()
) -> Eligible | Unserved:
    """Return what of `service` to relay, or why nothing of it. Pure.

    On a port on which its load balancer sends no PROXY, kube-proxy's short-circuited path does no harm; but
    no hostname may lead to a relay that can't replace the TLS that ends at the load balancer on another one.
    `own_names` are the hostnames by which it is served, if it is.
    """
    listed = identity.code == LISTED
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
        named = (
            f"served by hostname ({', '.join(own_names)}): hosts lines lead the node to the relay, CoreDNS "
            "the pods; nothing is redirected"
        )
        remarks = (*remarks, named)
    elif not addresses:
        return Unserved(_without_address(service, rules), remarks)
    if not service.ports:
        return Unserved(refused("NoPorts", "the Service has no ports"), remarks)
    if not service.cluster_ips:
        reason = "the Service has no ClusterIP that the relay can connect to"
        return Unserved(refused("NoClusterIP", reason), remarks)
    without = {*identity.versions, *identity.terminated}
    plain = tuple(port for port in ports if port not in without)
    with_proxy = tuple(port for port in ports if port in identity.versions)
    wholly = not identity.terminated and (listed or all(port.protocol == "TCP" for port in service.ports))
    return Eligible(addresses, with_proxy, plain, remarks, redirected=not own_names, wholly=wholly)


def _short_circuited(
    service: Service, rules: AddressRules, *, listed: bool
) -> tuple[tuple[IPAddress, ...], list[str]]:
    """Return the addresses that are short-circuited, and notes on special ones.

    externalIPs count only of a listed Service: anyone who can write one can put any address there. Even then,
    one that this node or the API server has does not count.
    """
    usable: list[IPAddress] = []
    remarks: list[str] = []
    for point in service.points:
        if point.ip is None:
            continue
        if obstacle := rules.obstacle(point.ip, listed=listed):
            remarks.append(f"{point.ip}: not redirected: {obstacle}")
        elif point.ip_mode != "Proxy" or point.ip in service.external_ips:
            # kube-proxy redirects an externalIP whatever the status says of the address.
            usable.append(point.ip)
        elif why := rules.why_ip_mode_ignored(point.ip):
            usable.append(point.ip)
            remarks.append(f"{point.ip}: ipMode Proxy, but {why}")
        else:
            remarks.append(f"{point.ip}: ipMode Proxy: kube-proxy does not short-circuit it")
    if service.external_ips and not listed:
        told = ", ".join(map(str, service.external_ips))
        why = "externalIPs count only if loadBalancers.services lists the Service (CVE-2020-8554)"
        remarks.append(f"{told}: ignored: {why}")
    for address in service.external_ips if listed else ():
        own = "it is this node's own address or the API server's" if address in rules.own else None
        if obstacle := rules.obstacle(address, listed=True) or own:
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
        return refused("BadAddress", "its status has no address that can be redirected: see the notes")
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
    addresses = tuple(address for address in eligible.addresses if address.version not in unsupported)
    if not addresses:
        reason = "this node supports no address family of its addresses: see the notes"
        return Unserved(skipped("FamilyNotSupported", reason), remarks)
    return replace(eligible, addresses=addresses, remarks=remarks)
