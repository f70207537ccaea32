"""This node's pods: which connections of theirs are redirected, and which may reach the relay. Pure."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.balancers.node_programs import POD_INTERFACES


class PodRanges(Struct, frozen=True):
    """This node's pods: which are redirected, which may reach the relay, and what a person should know.

    Only its own pods are redirected: traffic from elsewhere may carry the PROXY header already. They may
    reach the relay only if something leads them there, DNAT or CoreDNS: HAProxy connects as the node does,
    which network policies admit.
    """

    redirected: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()
    remarks: tuple[str, ...] = ()


def pod_ranges(snapshot: Snapshot, facts: Facts, config: Config) -> PodRanges:
    """Return the ranges of `dnat.podCIDRs`, or else the Node's, and notes on pods that nothing serves."""
    if not facts.node_name:
        return PodRanges()  # a plan for no node has nothing to say of its pods
    why = ""
    if config.dnat.backend == "none":
        why = "dnat.backend is none, and lines of the hosts file serve the node alone"
    elif not config.dnat.pods:
        why = "dnat.pods is false"
    by_coredns = config.coredns.serves_pods
    unserved = (
        f"pods are not served, cert-manager among them: {why}. CoreDNS can serve them (docs/coredns.md; the "
        "overlay cilium brings it); coredns.servesPods: true says that it does"
    )
    if why and not by_coredns:
        return PodRanges(remarks=(unserved,))
    found: Iterable[IPNetwork] = [text.network for text in config.dnat.pod_cidrs]
    if not found and snapshot.node is not None:
        found = snapshot.node.pod_cidrs
    if not found:
        unknown = (
            f"this node's pods are not served: no pod range of node {facts.node_name!r} is known "
            "(its Node object is missing or has no spec.podCIDRs); set dnat.podCIDRs"
        )
        kept_out = (
            "the guard drops this node's pods' connections to the relay, to which CoreDNS sends them: no pod "
            f"range of node {facts.node_name!r} is known (no spec.podCIDRs, or no Node object); set "
            "dnat.podCIDRs"
        )
        return PodRanges(remarks=(kept_out if why else unknown,))
    ipv4 = collapse_addresses(network for network in found if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in found if isinstance(network, IPv6Network))
    admitted: tuple[IPNetwork, ...] = (*ipv4, *ipv6)
    outside = _outside(facts, admitted)
    return PodRanges(() if why else admitted, admitted, outside)


def _outside(facts: Facts, admitted: Iterable[IPNetwork]) -> tuple[str, ...]:
    """Return what contradicts these ranges: an address that the network plugin took from the pods'."""
    found: dict[str, list[str]] = {}
    for each in facts.addresses:
        if each.interface not in POD_INTERFACES or each.address.is_link_local:
            continue
        if not any(each.address in network for network in admitted):
            found.setdefault(each.interface, []).append(str(each.address))
    return tuple(
        f"{interface} has {', '.join(sorted(addresses))}, outside of this node's known pod ranges "
        f"({', '.join(map(str, admitted))}): pods with such addresses are not served, and the guard drops "
        f"them. Set dnat.podCIDRs to {POD_INTERFACES[interface][0]}: {POD_INTERFACES[interface][1]}"
        for interface, addresses in sorted(found.items())
    )
