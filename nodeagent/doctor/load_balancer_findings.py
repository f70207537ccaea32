"""Each LoadBalancer Service: is it short-circuited, does that do harm, and what is the best fix. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.doctor.findings import CheckStatus, Code, Finding
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import DecisionStatus
from nodeagent.model.objects import Service
from nodeagent.plan.identity.identify import LISTED, Identity
from nodeagent.plan.identity.ways_out import ways_out

LEFT_ALONE = frozenset({"Ignored", "ExcludedByAnnotation"})
"""The codes for load balancers that someone excluded."""
_REMEDIED = frozenset({Code.RemediedByDnat, Code.RemediedByHosts})
_SEEN = {
    Code.NotProxy: "not known to send the PROXY header; without it, short-circuiting loses nothing",
    Code.Ignored: "excluded by configuration or annotation: no connection was made",
    Code.IPModeProxy: "not short-circuited: ipMode Proxy",
    Code.HostnameOnly: "not short-circuited: published by hostname, without an address",
    Code.NoAddress: "no address yet: the provider has not assigned one",
    Code.Tolerated: "works from this node without a fix",
    Code.LoadBalancerRemedied: "short-circuited by kube-proxy, and fixed on this node",
    Code.ShortCircuited: "short-circuited by kube-proxy, and rejected because the PROXY header is missing",
    Code.IPModeIgnored: "ipMode Proxy, yet short-circuited: what handles Services here ignores it",
    Code.Troubled: "connections from this node fail, and short-circuiting is not the only reason",
    Code.ShortCircuitedByObject: "sends the PROXY header, and is short-circuited on every node",
    Code.TerminatesTLS: "terminates TLS, and is short-circuited: the controller gets TLS of nodes and pods",
    Code.ProxyUnknown: "nothing says whether it sends the PROXY header; if so, it is short-circuited",
    Code.LoadBalancerUnclear: "no connection from this node shows a known case",
}

_BY_FLEET = "short-circuited on every node, and fixed: all agents are in sync"


class LoadBalancerObservation(Struct, frozen=True):
    """One Service and what is known of it.

    `paths` are the codes of its paths from this node, None off the node; `by_fleet`: whether the agents of
    all nodes report that they serve what they should.
    """

    service: Service
    identity: Identity
    paths: tuple[Code, ...] | None
    node_addresses: frozenset[IPAddress] = frozenset()
    by_fleet: bool = False


def load_balancer_finding(seen: LoadBalancerObservation, kubernetes: str, policy_api: str = "") -> Finding:
    """Return the finding, by the cluster's version and that of its MutatingAdmissionPolicies, if known."""
    code = _code(seen)
    evidence = _evidence(seen, kubernetes)
    if code in {Code.ShortCircuited, Code.LoadBalancerRemedied} and seen.paths:
        evidence.append("to try the pull of an image from a registry behind it: crictl pull REF")
    words = _BY_FLEET if seen.by_fleet and code is Code.LoadBalancerRemedied else _SEEN[code]
    if code is Code.ProxyUnknown and seen.identity.status is DecisionStatus.REFUSED:
        words = seen.identity.reason
    return Finding.of(code, seen.service.ref.path, words, evidence, _remedy(code, seen, policy_api))


def _code(seen: LoadBalancerObservation) -> Code:
    if seen.identity.code in LEFT_ALONE:
        return Code.Ignored
    vip, absent = _short_circuited(seen.service)
    # On a node, unless it was seen to be reached.
    reached = set(seen.paths or ()) == {Code.ThroughLoadBalancer}
    if vip and not reached and seen.identity.terminated:
        return Code.TerminatesTLS
    if seen.paths is None:
        return _off_node(seen, absent=None if vip else absent)
    if not seen.identity.proxy:
        return Code.Troubled if _troubled(seen.paths) else Code.NotProxy
    return absent if absent is Code.NoAddress else _of_paths(seen.paths, None if vip else absent)


def _off_node(seen: LoadBalancerObservation, absent: Code | None) -> Code:
    """Return the code without any connection; `absent`: why no kube-proxy short-circuits it, if none does."""
    if seen.identity.terminated and absent:
        return absent
    if seen.identity.proxy and absent is None:
        return Code.LoadBalancerRemedied if seen.by_fleet else Code.ShortCircuitedByObject
    refused = seen.identity.status is DecisionStatus.REFUSED
    if seen.identity.stated and not seen.identity.proxy and not refused:
        return Code.NotProxy
    return absent or Code.ProxyUnknown


def _of_paths(paths: Sequence[Code], absent: Code | None) -> Code:
    """Return the code of one that sends PROXY; `absent` as above."""
    if Code.ShortCircuitedAndCut in paths:
        return Code.IPModeIgnored if absent else Code.ShortCircuited
    if _troubled(paths):
        return Code.Troubled
    if not paths or Code.PathUnclear in paths:
        return Code.LoadBalancerUnclear
    return absent or (Code.LoadBalancerRemedied if _REMEDIED.intersection(paths) else Code.Tolerated)


def _troubled(paths: Sequence[Code]) -> bool:
    return any(code.status is CheckStatus.AFFECTED for code in paths)


def _short_circuited(service: Service) -> tuple[bool, Code]:
    """Return whether kube-proxy short-circuits it according to its status (KEP-1860), and if not, why not.

    An address that is one of its externalIPs as well is short-circuited whatever its ipMode says.
    """
    points = [point for point in service.points if point.ip is not None]
    if any(point.ip_mode != "Proxy" or point.ip in service.external_ips for point in points):
        return True, Code.ShortCircuited
    if points:
        return False, Code.IPModeProxy
    return False, Code.HostnameOnly if service.points else Code.NoAddress


def _evidence(seen: LoadBalancerObservation, kubernetes: str) -> list[str]:
    lines, identity = [], seen.identity
    for point in seen.service.points:
        address = f"{point.ip} (ipMode {point.ip_mode or 'not set, which means VIP'})" if point.ip else ""
        hostname = f"hostname {point.hostname}" if point.hostname else ""
        lines.append("published as " + ", ".join(filter(None, (address, hostname))))
    if ports := ", ".join(f"{port.port}/{port.protocol}" for port in seen.service.ports):
        lines.append(f"ports {ports}")
    if identity.status is not DecisionStatus.REFUSED:
        lines.append(identity.reason)
    lines += identity.remarks
    if identity.known_by and identity.provider is not None:
        lines.append(f"served by {identity.provider.name}: {identity.known_by}")
    if identity.proxy and kubernetes:
        lines.append(f"Kubernetes {kubernetes}")
    return lines


def _remedy(code: Code, seen: LoadBalancerObservation, policy_api: str) -> tuple[str, ...]:
    of_nodes = [address for address in seen.service.load_balancer_ips if address in seen.node_addresses]
    told = ", ".join(map(str, of_nodes))
    why = f"the status names nodes ({told}), as k3s' ServiceLB writes it, which sends no header"
    tolerant = code is Code.ShortCircuitedByObject and "traefik" in seen.service.ref.name
    hint = (_TRAEFIK,) if tolerant else ()
    if code is Code.ShortCircuitedByObject and of_nodes and seen.identity.code != LISTED:
        return (*hint, why, _SERVICELB)
    if code in {Code.ShortCircuited, Code.ShortCircuitedByObject, Code.TerminatesTLS}:
        ways = ways_out(seen.service, seen.identity, policy_api)
        return (*hint, *(step for way in ways for step in way.steps), *_LAST)
    if code is Code.ProxyUnknown:
        # To list it would help only if something else were in front.
        return (why, *_find_out(seen)[:2]) if of_nodes else _find_out(seen)
    if code is Code.LoadBalancerUnclear and not seen.paths:
        return ("no connection was made: it has no TCP port, or no address that this node can resolve",)
    if code is Code.HostnameOnly and seen.identity.proxy and seen.paths is None:
        return ("if connections from nodes or pods time out nevertheless: docs/fixes.md",)
    return _UPDATE if code is Code.IPModeIgnored else ()


def _find_out(seen: LoadBalancerObservation) -> tuple[str, ...]:
    ref = seen.service.ref
    if seen.identity.status is DecisionStatus.REFUSED:
        return (f"correct the annotations of Service {ref.path}",)
    return (
        "run nodeagent doctor on a node: there, it connects and sees whether the header is required",
        "$ nodeagent doctor",
        "if the load balancer sends the header, say so in nodeagent's configuration (docs/configuration.md):",
        "  loadBalancers:",
        "    services:",
        f"      - namespace: {ref.namespace}",
        f"        name: {ref.name}",
    )


_UPDATE = (
    "update what handles Services to a version that honors ipMode",
    "(kube-proxy 1.30, Cilium 1.17 but not 1.18.0, kube-router 2.9, Antrea 2.0, Calico eBPF 3.30)",
    "or let nodeagent serve it: it detects the short-circuiting in the kernel's rules",
)
_SERVICELB = (
    "if the cloud's load balancer is in front, leave the status to its controller: switch ServiceLB off (k3s "
    "server --disable servicelb)"
)
_TRAEFIK = (
    "first run nodeagent doctor on a node: Traefik accepts connections without the header, and then only the "
    "client's address is lost (docs/controllers.md)"
)
_LAST = (
    (
        "if only certificates fail: cert-manager 1.21 and later can wait instead of checking "
        "(spec.acme.solvers[].waitInsteadOfSelfCheck); this helps neither pulls nor calls"
    ),
    "then run nodeagent doctor again",
)
