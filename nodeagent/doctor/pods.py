"""Who serves this node's pods: DNAT, CoreDNS, or nobody. Pure."""

from dataclasses import dataclass

from nodeagent.doctor.codes import Code
from nodeagent.doctor.finding import Finding

_SUBJECT = "pods"


@dataclass(frozen=True, slots=True)
class PodsObservation:
    """What is known of the way that this node's pods take.

    Attributes:
        redirected: whether DNAT for pods is in force on this node.
        socket_balancer: whether something rewrites `connect()` here, so that DNAT sees nothing of it.
        by_coredns: whether CoreDNS answers a name with the relay's address; None where it could not be asked.
        said: whether the configuration says that CoreDNS serves pods (`coredns.servesPods`).
    """

    redirected: bool
    socket_balancer: bool
    by_coredns: bool | None
    said: bool


def pods_finding(seen: PodsObservation) -> Finding:
    """The finding for a node on which nodeagent serves a load balancer."""
    if seen.redirected and not seen.socket_balancer:
        return Finding(Code.PodsByDnat, _SUBJECT, "served by DNAT, as the node is")
    if seen.by_coredns:
        return Finding(Code.PodsByCoreDns, _SUBJECT, "served by CoreDNS: it answers with the relay's address")
    if seen.by_coredns is None and seen.said:
        return Finding(
            Code.PodsLeftToCoreDns,
            _SUBJECT,
            "left to CoreDNS, as coredns.servesPods says; CoreDNS could not be asked from here",
        )
    why = "DNAT does not see their connections" if seen.socket_balancer else "there is no DNAT for them"
    and_coredns = "" if seen.by_coredns is None else ", and CoreDNS does not answer with the relay's address"
    return Finding(
        Code.PodsNotServed,
        _SUBJECT,
        f"not served, cert-manager's among them: {why}{and_coredns}",
        remedy=(
            "have CoreDNS serve them: the overlay cilium brings its controllers (docs/coredns.md)",
            "or, without nodeagent: ipMode: Proxy, or a hostname in place of the address",
        ),
    )
