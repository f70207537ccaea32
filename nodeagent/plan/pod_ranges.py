"""Which pods are this node's own, and what that lets them do. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses

from nodeagent.config.options import Config
from nodeagent.model.addresses import IPNetwork
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot


@dataclass(frozen=True, slots=True)
class PodRanges:
    """This node's pods: whose traffic is redirected, who may reach the relay, and what a person should know.

    Only its own pods are redirected: traffic from elsewhere may bear the PROXY line already. They may reach
    the relay even where they are not redirected, since CoreDNS can give them names that lead there.
    """

    redirected: tuple[IPNetwork, ...] = ()
    admitted: tuple[IPNetwork, ...] = ()
    remarks: tuple[str, ...] = ()


def pod_ranges(snapshot: Snapshot, facts: Facts, config: Config) -> PodRanges:
    """The ranges of `dnat.podCIDRs`, or else those of the Node. Without DNAT rules none is redirected.

    Pods that neither DNAT nor CoreDNS serves are worth a remark.
    """
    why = _why_unserved(config)
    found: Iterable[IPNetwork] = [text.network for text in config.dnat.pod_cidrs]
    if not found and snapshot.node is not None:
        found = snapshot.node.pod_cidrs
    if not found:
        return PodRanges(remarks=_unserved(config, why) if why else (_unknown(facts),))
    ipv4 = collapse_addresses(network for network in found if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in found if isinstance(network, IPv6Network))
    admitted: tuple[IPNetwork, ...] = (*ipv4, *ipv6)
    if why:
        return PodRanges(admitted=admitted, remarks=_unserved(config, why))
    return PodRanges(admitted, admitted)


def _unknown(facts: Facts) -> str:
    return (
        f"this node's pods are not served: no pod range of node {facts.node_name!r} is known "
        "(its Node object is missing or has no spec.podCIDRs); set dnat.podCIDRs"
    )


def _why_unserved(config: Config) -> str:
    """Why DNAT is not to serve pods; empty where it is."""
    if config.dnat.backend == "none":
        return "dnat.backend is none, and lines of the hosts file serve the node alone"
    return "" if config.dnat.pods else "dnat.pods is false"


def _unserved(config: Config, why: str) -> tuple[str, ...]:
    if config.coredns.serves_pods:
        return ()
    remark = (
        f"pods are not served, cert-manager among them: {why}. CoreDNS can serve them (docs/coredns.md; the "
        "overlay cilium brings it); coredns.servesPods: true says that it does"
    )
    return (remark,)
