"""What of a PROXY load balancer kube-proxy short-circuits: the addresses and TCP ports to relay."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from nodeagent.model.addresses import Endpoint, IPAddress, IPNetwork
from nodeagent.model.desired import Verdict
from nodeagent.model.objects import LoadBalancerPoint, Service
from nodeagent.plan.detection.sending import tcp_ports

_BROADCAST = IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a load balancer is not relayed; `remarks` are about parts of it."""

    verdict: Verdict
    code: str
    reason: str
    remarks: tuple[str, ...] = ()


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
    service: Service, proxy_ports: Collection[int], relay_ranges: Iterable[IPNetwork]
) -> Eligible | Refusal:
    """Pure: what of `service` is to be relayed, or why nothing of it is.

    On `proxy_ports` its load balancer sends PROXY. On its other ports kube-proxy's short way does no harm.
    An address in one of `relay_ranges` is no load balancer's: traffic for it would be sent to itself.
    """
    ranges = tuple(relay_ranges)
    remarks = (
        *service.problems,
        *(
            _point_remark(point, ranges)
            for point in service.points
            if point.ip and not _usable(point, ranges)
        ),
        *(
            f"port {port.port}/{port.protocol}: left alone, the PROXY line is for TCP"
            for port in service.ports
            if port.protocol != "TCP"
        ),
    )
    addresses = tuple(
        dict.fromkeys(point.ip for point in service.points if point.ip and _usable(point, ranges))
    )
    ports = tcp_ports(service)
    if not addresses:
        verdict, code, reason = _without_address(service)
        return Refusal(verdict, code, reason, remarks)
    if not service.ports:
        return Refusal(Verdict.REFUSED, "NoPorts", "the Service has no ports", remarks)
    if not ports:
        return Refusal(Verdict.SKIPPED, "NoTCPPort", "the Service has no TCP port", remarks)
    if not service.cluster_ips:
        reason = "the Service has no ClusterIP that the relay could send to"
        return Refusal(Verdict.REFUSED, "NoClusterIP", reason, remarks)
    plain = tuple(port for port in ports if port not in proxy_ports)
    return Eligible(addresses, tuple(port for port in ports if port in proxy_ports), plain, remarks)


def _without_address(service: Service) -> tuple[Verdict, str, str]:
    if any(point.ip_mode == "Proxy" for point in service.points if point.ip):
        return Verdict.SKIPPED, "IPModeProxy", "ipMode Proxy: kube-proxy does not short-circuit its address"
    if service.load_balancer_ips or any("status.loadBalancer" in problem for problem in service.problems):
        return Verdict.REFUSED, "BadAddress", "its status holds no address that a load balancer can have"
    if service.points:
        reason = f"published by hostname ({service.points[0].hostname}): kube-proxy does not short-circuit it"
        return Verdict.SKIPPED, "HostnameOnly", reason
    return Verdict.SKIPPED, "NoAddress", "status.loadBalancer is empty: the provider gave no address yet"


def _usable(point: LoadBalancerPoint, ranges: Sequence[IPNetwork]) -> bool:
    """Whether kube-proxy short-circuits it: it does so for every IP but those in ipMode Proxy (KEP-1860)."""
    return point.ip is not None and point.ip_mode != "Proxy" and not _impossible(point.ip, ranges)


def _impossible(address: IPAddress, ranges: Sequence[IPNetwork]) -> bool:
    special = address.is_loopback or address.is_multicast or address.is_unspecified or address == _BROADCAST
    return special or any(address in network for network in ranges)


def _point_remark(point: LoadBalancerPoint, ranges: Sequence[IPNetwork]) -> str:
    if point.ip is not None and _impossible(point.ip, ranges):
        return f"{point.ip}: can't be a load balancer's address; left alone"
    return f"{point.ip}: ipMode Proxy: kube-proxy does not short-circuit it"
