"""The world's address plan: every address, name and port in it, each said once, in both families."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal, Protocol, TypeAlias, TypeVar, get_args

Address: TypeAlias = IPv4Address | IPv6Address
Interface: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Network: TypeAlias = IPv4Network | IPv6Network
Family: TypeAlias = Literal[4, 6]
Stack: TypeAlias = Literal[4, 6, "dual"]
"""A world's families: IPv4 alone, IPv6 alone, or both."""
STACKS: tuple[Stack, ...] = get_args(Stack)


def families_of(stack: Stack) -> tuple[Family, ...]:
    return (4, 6) if stack == "dual" else (stack,)


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


_Kind = TypeVar("_Kind", bound=_Versioned)


def within(found: Iterable[_Kind], families: Iterable[Family]) -> tuple[_Kind, ...]:
    """Those of some addresses or networks that are of one of the families, in their order."""
    wanted = set(families)
    return tuple(one for one in found if one.version in wanted)


@dataclass(frozen=True)
class Place:
    """The place of one host: its addresses on eth0, its routes, and the node it is behind, if it is a pod.

    A route is a destination, and the neighbor by which packets for it leave; those of a route without one are
    delivered on eth0 itself. A pod's neighbor is its node's end of its cable.
    """

    host: str
    addresses: tuple[Interface, ...]
    routes: tuple[tuple[Network, Address | None], ...]
    behind: str = ""


EVERYWHERE = IPv4Network("0.0.0.0/0")
EVERYWHERE6 = IPv6Network("::/0")

LB = IPv4Address("192.0.2.2")
NODE1 = IPv4Address("192.0.2.11")
NODE2 = IPv4Address("192.0.2.12")
LB_6 = IPv6Address("2001:db8:1::2")
NODE1_6 = IPv6Address("2001:db8:1::11")
NODE2_6 = IPv6Address("2001:db8:1::12")

CLIENT = IPv4Address("198.51.100.10")
CLIENT_6 = IPv6Address("2001:db8:2::10")
_LB_OUTSIDE = IPv4Address("198.51.100.2")
_LB_OUTSIDE_6 = IPv6Address("2001:db8:2::2")
_OUTSIDE = IPv4Network("198.51.100.0/24")
_OUTSIDE_6 = IPv6Network("2001:db8:2::/64")

POD1 = IPv4Address("10.244.1.2")
POD2 = IPv4Address("10.244.2.2")
POD1_6 = IPv6Address("fd00:10:244:1::2")
POD2_6 = IPv6Address("fd00:10:244:2::2")
POD_CIDR1 = IPv4Network("10.244.1.0/24")
POD_CIDR2 = IPv4Network("10.244.2.0/24")
POD_CIDR1_6 = IPv6Network("fd00:10:244:1::/64")
POD_CIDR2_6 = IPv6Network("fd00:10:244:2::/64")
POD_CIDRS: dict[str, tuple[Network, ...]] = {
    "node1": (POD_CIDR1, POD_CIDR1_6),
    "node2": (POD_CIDR2, POD_CIDR2_6),
}
CLUSTER_CIDRS: tuple[Network, ...] = (IPv4Network("10.244.0.0/16"), IPv6Network("fd00:10:244::/48"))

SERVICE_CIDRS: tuple[Network, ...] = (IPv4Network("10.96.0.0/16"), IPv6Network("fd00:10:96::/112"))

LOAD_BALANCER_IP = IPv4Address("203.0.113.10")
LOAD_BALANCER_IP_6 = IPv6Address("2001:db8:3::10")
LOAD_BALANCER_IPS: tuple[Address, ...] = (LOAD_BALANCER_IP,)
"""In an IPv4 world; World.service has those of any."""
EVERY_LOAD_BALANCER_IP: tuple[Address, ...] = (LOAD_BALANCER_IP, LOAD_BALANCER_IP_6)
INGRESS_CLUSTER_IP = IPv4Address("10.96.0.10")
INGRESS_CLUSTER_IP_6 = IPv6Address("fd00:10:96::10")
INGRESS_CLUSTER_IPS: tuple[Address, ...] = (INGRESS_CLUSTER_IP, INGRESS_CLUSTER_IP_6)

SITE = "site.example.test"
REGISTRY = "registry.example.test"
ANOTHER = "another.example.test"
NAMES = (SITE, REGISTRY, ANOTHER)

REGISTRY_PORT = 5000
DNS_PORT = 53


_OF_EACH_NODE = ((EVERYWHERE, LB), (_OUTSIDE, None), (EVERYWHERE6, LB_6), (_OUTSIDE_6, None))


def _interfaces(*addresses: Address) -> tuple[Interface, ...]:
    return tuple(ipaddress.ip_interface((one, 24 if one.version == 4 else 64)) for one in addresses)


# The pod networks are routed to the load balancer too: a pod whose traffic to it is not short-circuited
# must get its answer. The load balancer has no default route, so the world has no way out.
# A node reaches the client without the load balancer, which would drop answers that have its own address.
PLACES: tuple[Place, ...] = (
    Place(
        "lb",
        _interfaces(LB, LB_6, _LB_OUTSIDE, _LB_OUTSIDE_6),
        ((POD_CIDR1, NODE1), (POD_CIDR2, NODE2), (POD_CIDR1_6, NODE1_6), (POD_CIDR2_6, NODE2_6)),
    ),
    Place("client", _interfaces(CLIENT, CLIENT_6), ((EVERYWHERE, _LB_OUTSIDE), (EVERYWHERE6, _LB_OUTSIDE_6))),
    Place("node1", _interfaces(NODE1, NODE1_6), (*_OF_EACH_NODE, (POD_CIDR2, NODE2), (POD_CIDR2_6, NODE2_6))),
    Place("node2", _interfaces(NODE2, NODE2_6), (*_OF_EACH_NODE, (POD_CIDR1, NODE1), (POD_CIDR1_6, NODE1_6))),
    Place(
        "pod1",
        _interfaces(POD1, POD1_6),
        ((EVERYWHERE, POD_CIDR1[1]), (EVERYWHERE6, POD_CIDR1_6[1])),
        behind="node1",
    ),
    Place(
        "pod2",
        _interfaces(POD2, POD2_6),
        ((EVERYWHERE, POD_CIDR2[1]), (EVERYWHERE6, POD_CIDR2_6[1])),
        behind="node2",
    ),
)


def bracketed(address: Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)


def address_of(host: str, family: Family) -> Address:
    """A host's first address in a family: the one that others know it by; of no host there, a KeyError."""
    return within({place.host: place.addresses for place in PLACES}[host], (family,))[0].ip
