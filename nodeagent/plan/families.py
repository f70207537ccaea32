"""Which address families this node speaks: a load balancer's addresses of another are of no use to it."""

from collections.abc import Mapping
from dataclasses import replace

from nodeagent.model.addresses import Family, IPAddress
from nodeagent.model.desired import Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.eligibility import Eligible, Refusal

_FAMILIES: tuple[Family, Family] = (4, 6)


def unsupported_families(snapshot: Snapshot, facts: Facts) -> Mapping[int, str]:
    """Pure: each family that this node does not speak, with the reason.

    A node speaks a family in which it has an address of its own: on an interface, in its Node object, among
    its pods' ranges, or as the source of its connections. Without one it reaches nobody in that family, the
    PROXY line would have nobody to name, and with a relay address as its only one the kernel would take that
    for the source of other traffic (RFC 6724, rule 2, for want of another). Loopback and link-local
    addresses are not enough, nor are the relay's own. Where the interfaces tell no address of either family,
    nothing is known, and both count as spoken.
    """
    on_interfaces: set[int] = {
        standing.address.version
        for standing in facts.addresses
        if not standing.ours and _is_reachable(standing.address)
    }
    spoken = on_interfaces | _told(snapshot, facts) if on_interfaces else set(_FAMILIES)
    if facts.ipv6_off and 6 not in on_interfaces:
        # The kernel's word is stronger than what the cluster was told while IPv6 was on.
        spoken.discard(6)
    return {family: _reason(family, facts) for family in _FAMILIES if family not in spoken}


def supported_part(eligible: Eligible, unsupported: Mapping[int, str]) -> Eligible | Refusal:
    """Pure: what is eligible without the addresses of unsupported families, one remark for each of these."""
    remarks = (
        *eligible.remarks,
        *(
            f"{address}: not relayed: {unsupported[address.version]}"
            for address in eligible.addresses
            if address.version in unsupported
        ),
    )
    addresses = tuple(address for address in eligible.addresses if address.version not in unsupported)
    if not addresses:
        reason = "this node supports no address family of its addresses: see the notes"
        return Refusal(Verdict.SKIPPED, "FamilyNotSupported", reason, remarks)
    return replace(eligible, addresses=addresses, remarks=remarks)


def _told(snapshot: Snapshot, facts: Facts) -> set[int]:
    told: set[int] = {address.version for address in facts.source_addresses}
    if snapshot.node is not None:
        told |= {address.version for address in snapshot.node.addresses}
        told |= {network.version for network in snapshot.node.pod_cidrs}
    return told


def _is_reachable(address: IPAddress) -> bool:
    return not (address.is_loopback or address.is_link_local or address.is_multicast)


def _reason(family: Family, facts: Facts) -> str:
    if family == 6 and facts.ipv6_off:
        return f"IPv6 is switched off on this node ({facts.ipv6_off})"
    return f"this node has no IPv{family} address of its own"
