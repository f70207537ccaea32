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
    """The ranges of `dnat.podCIDRs`, or else those of the Node. Without DNAT rules none is redirected."""
    redirects = config.dnat.pods and config.dnat.backend != "none"
    found: Iterable[IPNetwork] = [text.network for text in config.dnat.pod_cidrs]
    if not found and snapshot.node is not None:
        found = snapshot.node.pod_cidrs
    if not found:
        return PodRanges(remarks=(_unknown(facts),) if redirects else ())
    ipv4 = collapse_addresses(network for network in found if isinstance(network, IPv4Network))
    ipv6 = collapse_addresses(network for network in found if isinstance(network, IPv6Network))
    admitted: tuple[IPNetwork, ...] = (*ipv4, *ipv6)
    return PodRanges(admitted if redirects else (), admitted)


def _unknown(facts: Facts) -> str:
    return (
        f"this node's pods are not served: no pod range of node {facts.node_name!r} is known "
        "(its Node object is missing or has no spec.podCIDRs); set dnat.podCIDRs"
    )
