"""Which pods are this node's own, and what that lets them do. Pure."""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, collapse_addresses

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot

_CILIUM = (
    "Cilium's ranges",
    "kubectl get ciliumnodes -o custom-columns=NODE:.metadata.name,PODS:.spec.ipam.podCIDRs",
)
_CALICO = ("Calico's pools", "kubectl get ippools -o custom-columns=POOL:.spec.cidr")
_FROM_PODS_RANGES: Mapping[str, tuple[str, str]] = {
    "cilium_host": _CILIUM,
    "tunl0": _CALICO,
    "vxlan.calico": _CALICO,
    "vxlan-v6.calico": _CALICO,
    "wireguard.cali": _CALICO,
}
"""Interfaces to which a network plugin gives an address of the node's own pods, by its own IPAM. Cilium's
cluster-pool and Calico's IPAM take no notice of spec.podCIDRs (projectcalico/calico#2592). With each:
what to set instead, and what shows it."""


class PodRanges(Struct, frozen=True):
    """This node's pods: which are redirected, which may reach the relay, and what a person should know.

    Only its own pods are redirected: traffic from elsewhere may carry the PROXY header already. They may
    reach the relay even if they are not redirected, since CoreDNS can give them hostnames that lead there.
    """

    redirected: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()
    remarks: tuple[str, ...] = ()


def pod_ranges(snapshot: Snapshot, facts: Facts, config: Config) -> PodRanges:
    """Return the ranges of `dnat.podCIDRs`, or else those of the Node. Without DNAT rules, none is used.

    Pods that neither DNAT nor CoreDNS serves get a note.
    """
    why = _why_unserved(config)
    found: Iterable[IPNetwork] = [text.network for text in config.dnat.pod_cidrs]
    if not found and snapshot.node is not None:
        found = snapshot.node.pod_cidrs
    if not found:
        return PodRanges(remarks=_unserved(config, why, facts) if why else (_unknown(facts),))
    ipv4 = collapse_addresses(network for network in found if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in found if isinstance(network, IPv6Network))
    admitted: tuple[IPNetwork, ...] = (*ipv4, *ipv6)
    outside = _outside(facts, admitted)
    if why:
        return PodRanges(admitted=admitted, remarks=(*_unserved(config, why), *outside))
    return PodRanges(admitted, admitted, outside)


def _unknown(facts: Facts) -> str:
    return (
        f"this node's pods are not served: no pod range of node {facts.node_name!r} is known "
        "(its Node object is missing or has no spec.podCIDRs); set dnat.podCIDRs"
    )


def _kept_out(facts: Facts) -> str:
    return (
        "the guard drops this node's pods' connections to the relay, to which CoreDNS sends them: no pod "
        "range of "
        f"node {facts.node_name!r} is known (no spec.podCIDRs, or no Node object); set dnat.podCIDRs"
    )


def _why_unserved(config: Config) -> str:
    """Why DNAT does not serve pods; empty if it does."""
    if config.dnat.backend == "none":
        return "dnat.backend is none, and lines of the hosts file serve the node alone"
    return "" if config.dnat.pods else "dnat.pods is false"


def _outside(facts: Facts, admitted: Iterable[IPNetwork]) -> tuple[str, ...]:
    """Return what contradicts these ranges: an address that the network plugin took from the pods'."""
    found: dict[str, list[str]] = {}
    for each in facts.addresses:
        if each.interface not in _FROM_PODS_RANGES or each.address.is_link_local:
            continue
        if not any(each.address in network for network in admitted):
            found.setdefault(each.interface, []).append(str(each.address))
    return tuple(
        f"{interface} has {', '.join(sorted(addresses))}, outside of this node's known pod ranges "
        f"({', '.join(map(str, admitted))}): pods with such addresses are not served, and the guard drops "
        f"them. Set dnat.podCIDRs to {_FROM_PODS_RANGES[interface][0]}: {_FROM_PODS_RANGES[interface][1]}"
        for interface, addresses in sorted(found.items())
    )


def _unserved(config: Config, why: str, unknown_of: Facts | None = None) -> tuple[str, ...]:
    if config.coredns.serves_pods:
        return () if unknown_of is None else (_kept_out(unknown_of),)
    remark = (
        f"pods are not served, cert-manager among them: {why}. CoreDNS can serve them (docs/coredns.md; the "
        "overlay cilium brings it); coredns.servesPods: true says that it does"
    )
    return (remark,)
