"""Each LoadBalancer Service: is it short-circuited, does that hurt, and what is the best remedy. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodeagent.doctor.codes import Code, Verdict
from nodeagent.doctor.finding import Finding
from nodeagent.doctor.remedies import remedies
from nodeagent.model.objects import Service
from nodeagent.plan.detection.readers import Provider

_REMEDIED = frozenset({Code.RemediedByDnat, Code.RemediedByHosts})
_SEEN = {
    Code.NotProxy: "not known to send the PROXY line: nothing that a short circuit could leave out",
    Code.Ignored: "left alone, as somebody decided: not connected to",
    Code.IPModeProxy: "not short-circuited: ipMode Proxy",
    Code.HostnameOnly: "not short-circuited: published by hostname, without an address",
    Code.NoAddress: "no address yet: the provider gave it none",
    Code.Tolerated: "works from this node without a remedy",
    Code.LoadBalancerRemedied: "short-circuited by kube-proxy, and remedied on this node",
    Code.ShortCircuited: "short-circuited by kube-proxy, and cut for want of the PROXY line",
    Code.IPModeIgnored: "ipMode Proxy, yet short-circuited: what handles Services here ignores it",
    Code.Troubled: "connections from this node fail, for another reason than a short circuit alone",
    Code.ShortCircuitedByObject: "every kube-proxy short-circuits it; a remedy on the nodes is seen there",
    Code.LoadBalancerUnclear: "what was seen from this node has no known meaning",
}


@dataclass(frozen=True, slots=True)
class LoadBalancerObservation:
    """One Service and what is known of it.

    Attributes:
        service: the object.
        proxy: whether it is known to send PROXY.
        said: who says so, or what decided otherwise, in words.
        ignored: whether somebody decided to leave it alone.
        paths: the codes of its paths from this node; None off the node.
        provider: whose it is; None where that is not known.
    """

    service: Service
    proxy: bool
    said: str
    ignored: bool
    paths: tuple[Code, ...] | None
    provider: Provider | None


def load_balancer_finding(seen: LoadBalancerObservation, kubernetes: str, policy_api: str = "") -> Finding:
    """The finding.

    `kubernetes` is the cluster's version, `policy_api` that of its MutatingAdmissionPolicies; each is empty
    where it is not known.
    """
    code = _code(seen)
    return Finding(
        code=code,
        subject=seen.service.ref.path,
        seen=_SEEN[code],
        evidence=tuple(_evidence(seen, kubernetes)),
        remedy=_remedy(code, seen, kubernetes, policy_api),
    )


def _code(seen: LoadBalancerObservation) -> Code:
    if seen.ignored:
        return Code.Ignored
    paths = seen.paths or ()
    troubled = any(code.verdict is Verdict.AFFECTED for code in paths)
    if not seen.proxy:
        return Code.Troubled if troubled else Code.NotProxy
    vip, absent = _short_circuited(seen.service)
    if not vip:
        if Code.ShortCircuitedAndCut in paths:
            return Code.IPModeIgnored
        return Code.Troubled if troubled else absent
    if seen.paths is None:
        return Code.ShortCircuitedByObject
    return _of_paths(seen.paths, troubled=troubled)


def _of_paths(paths: Sequence[Code], *, troubled: bool) -> Code:
    if Code.ShortCircuitedAndCut in paths:
        return Code.ShortCircuited
    if troubled:
        return Code.Troubled
    if not paths or Code.PathUnclear in paths:
        return Code.LoadBalancerUnclear
    return Code.LoadBalancerRemedied if _REMEDIED.intersection(paths) else Code.Tolerated


def _short_circuited(service: Service) -> tuple[bool, Code]:
    """Whether kube-proxy short-circuits it by its status (KEP-1860), and if not, why not."""
    if any(point.ip is not None and point.ip_mode != "Proxy" for point in service.points):
        return True, Code.ShortCircuited
    if any(point.ip is not None for point in service.points):
        return False, Code.IPModeProxy
    return False, Code.HostnameOnly if service.points else Code.NoAddress


def _evidence(seen: LoadBalancerObservation, kubernetes: str) -> list[str]:
    lines = []
    for point in seen.service.points:
        mode = f"ipMode {point.ip_mode or 'not set, which means VIP'}"
        parts = [
            f"{point.ip} ({mode})" if point.ip else "",
            f"hostname {point.hostname}" if point.hostname else "",
        ]
        lines.append("published as " + ", ".join(part for part in parts if part))
    ports = ", ".join(f"{port.port}/{port.protocol}" for port in seen.service.ports)
    if ports:
        lines.append(f"ports {ports}")
    lines.append(seen.said)
    if seen.proxy and kubernetes:
        lines.append(f"Kubernetes {kubernetes}")
    return lines


def _remedy(code: Code, seen: LoadBalancerObservation, kubernetes: str, policy_api: str) -> tuple[str, ...]:
    if code in {Code.ShortCircuited, Code.ShortCircuitedByObject}:
        return remedies(seen.service, seen.provider, kubernetes, policy_api)
    if code is Code.IPModeIgnored:
        return (
            "bring what handles Services to a version that honours ipMode",
            "(kube-proxy 1.30, Cilium 1.17 but not 1.18.0, kube-router 2.9, Antrea 2.0)",
            "or let nodeagent serve it: it sees the short circuit in the kernel's rules",
        )
    return ()
