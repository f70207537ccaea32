"""What of a PROXY load balancer kube-proxy short-circuits: the addresses and TCP ports to relay."""

from collections.abc import Collection
from dataclasses import dataclass

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Verdict
from nodeagent.model.objects import LoadBalancerPoint, Service
from nodeagent.plan.address_rules import AddressRules
from nodeagent.plan.ip_mode import IPModePolicy


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a load balancer is not relayed; `remarks` are about parts of it.

    `taken` are those about ports that another program of this node holds.
    """

    verdict: Verdict
    code: str
    reason: str
    remarks: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


class Terms(Struct, frozen=True):
    """What an address is judged by: `ip_mode` tells whether `ipMode: Proxy` is believed of it."""

    rules: AddressRules
    ip_mode: IPModePolicy


@dataclass(frozen=True, slots=True)
class Eligible:
    """The addresses and TCP ports that are short-circuited, and remarks on what was left out.

    `ports` are those on which the load balancer sends PROXY, `plain_ports` its other TCP ports.
    """

    addresses: tuple[IPAddress, ...]
    ports: tuple[int, ...]
    plain_ports: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every address with every PROXY port."""
        return tuple(Endpoint(address, port) for address in self.addresses for port in self.ports)

    @property
    def plain_endpoints(self) -> tuple[Endpoint, ...]:
        """Every address with every other TCP port."""
        return tuple(Endpoint(address, port) for address in self.addresses for port in self.plain_ports)


def examine(
    service: Service, proxy_ports: Collection[int], terms: Terms, *, listed: bool
) -> Eligible | Refusal:
    """Pure: what of `service` is to be relayed, or why nothing of it is.

    On `proxy_ports` its load balancer sends PROXY. On its other ports kube-proxy's short way does no harm.
    `listed`: the administrator named it in loadBalancers.services, so its externalIPs count as well.
    """
    published, about_published = _published(service, terms, listed=listed)
    external, about_external = _external(service, terms, listed=listed)
    addresses = tuple(dict.fromkeys((*published, *external)))
    remarks = (
        *service.problems,
        *about_published,
        *about_external,
        *(
            f"port {port.port}/{port.protocol}: ignored, the PROXY header is only for TCP"
            for port in service.ports
            if port.protocol != "TCP"
        ),
    )
    ports = service.tcp_ports
    if not addresses:
        verdict, code, reason = _without_address(service, terms)
        return Refusal(verdict, code, reason, remarks)
    if not service.ports:
        return Refusal(Verdict.REFUSED, "NoPorts", "the Service has no ports", remarks)
    if not ports:
        return Refusal(Verdict.SKIPPED, "NoTCPPort", "the Service has no TCP port", remarks)
    if not service.cluster_ips:
        reason = "the Service has no ClusterIP that the relay can connect to"
        return Refusal(Verdict.REFUSED, "NoClusterIP", reason, remarks)
    plain = tuple(port for port in ports if port not in proxy_ports)
    return Eligible(addresses, tuple(port for port in ports if port in proxy_ports), plain, remarks)


def _published(service: Service, terms: Terms, *, listed: bool) -> tuple[list[IPAddress], list[str]]:
    """The addresses of the status that are short-circuited, and remarks on what is special about some."""
    usable: list[IPAddress] = []
    remarks: list[str] = []
    for point in service.points:
        if point.ip is None:
            continue
        if refused := terms.rules.obstacle(point.ip, listed=listed):
            remarks.append(f"{point.ip}: not redirected: {refused}")
        elif point.ip_mode != "Proxy":
            usable.append(point.ip)
        elif why := terms.ip_mode.disbelief(point.ip):
            usable.append(point.ip)
            remarks.append(f"{point.ip}: ipMode Proxy, but {why}")
        else:
            remarks.append(f"{point.ip}: ipMode Proxy: kube-proxy does not short-circuit it")
    return usable, remarks


def _external(service: Service, terms: Terms, *, listed: bool) -> tuple[list[IPAddress], list[str]]:
    """The externalIPs that count: kube-proxy short-circuits them as well.

    Whoever may write a Service may put any address there (CVE-2020-8554), so an administrator has to name the
    Service, and even then they take no address that this node itself or the API server has.
    """
    if not listed:
        told = ", ".join(map(str, service.external_ips))
        why = "externalIPs count only if loadBalancers.services lists the Service (CVE-2020-8554)"
        return [], [f"{told}: ignored: {why}"] if told else []
    usable: list[IPAddress] = []
    remarks: list[str] = []
    for address in service.external_ips:
        refused = terms.rules.obstacle(address, listed=True)
        if refused is None and address in terms.rules.own:
            refused = "it is this node's own address or the API server's"
        if refused:
            remarks.append(f"{address}: an externalIP, not redirected: {refused}")
        else:
            usable.append(address)
    return usable, remarks


def _without_address(service: Service, terms: Terms) -> tuple[Verdict, str, str]:
    own = terms.rules.own.intersection(service.load_balancer_ips)
    if any(terms.rules.obstacle(address, listed=True) is None for address in own):
        reason = (
            "its addresses are this node's own or the API server's: if they are its load balancer's as well, "
            "list it in loadBalancers.services"
        )
        return Verdict.REFUSED, "NodeAddress", reason
    if any(point.ip_mode == "Proxy" for point in service.points if point.ip):
        return Verdict.SKIPPED, "IPModeProxy", "ipMode Proxy: kube-proxy does not short-circuit its address"
    if service.load_balancer_ips or any("status.loadBalancer" in problem for problem in service.problems):
        return (
            Verdict.REFUSED,
            "BadAddress",
            "its status has no address that can be redirected: see the notes",
        )
    if service.points:
        return Verdict.SKIPPED, "HostnameOnly", _by_hostname(service.points[0])
    return (
        Verdict.SKIPPED,
        "NoAddress",
        ("status.loadBalancer is empty: the provider has not assigned an address yet"),
    )


def _by_hostname(point: LoadBalancerPoint) -> str:
    return f"published by hostname ({point.hostname}): kube-proxy does not short-circuit it"
