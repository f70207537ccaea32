"""The world's address plan: every address, name and port in it, each said once.

A host holds a tuple of addresses and a tuple of routes, and each says its own family: a second family is a
second entry here, not a second plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Interface: TypeAlias = IPv4Interface | IPv6Interface
Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True)
class Route:
    """Packets for `destination` leave by the neighbour `via`, or are delivered on eth0 itself without one."""

    destination: Network
    via: Address | None = None

    @property
    def hop(self) -> str:
        """The next hop, as `ip route` takes it."""
        return "dev eth0" if self.via is None else f"via {self.via}"


@dataclass(frozen=True)
class Place:
    """Where one host stands: its addresses on eth0, its routes, and the node it is behind, if it is a pod."""

    host: str
    addresses: tuple[Interface, ...]
    routes: tuple[Route, ...]
    behind: str | None = None
    gateways: tuple[Interface, ...] = ()
    """The addresses of the node's end of a pod's cable."""

    @property
    def address(self) -> Address:
        """The host's first address: the one that others know it by."""
        return self.addresses[0].ip


EVERYWHERE = IPv4Network("0.0.0.0/0")

LB = IPv4Address("192.0.2.2")
NODE1 = IPv4Address("192.0.2.11")
NODE2 = IPv4Address("192.0.2.12")

CLIENT = IPv4Address("198.51.100.10")
_LB_OUTSIDE = IPv4Address("198.51.100.2")
_OUTSIDE = IPv4Network("198.51.100.0/24")

POD1 = IPv4Address("10.244.1.2")
POD2 = IPv4Address("10.244.2.2")
POD_CIDR1 = IPv4Network("10.244.1.0/24")
POD_CIDR2 = IPv4Network("10.244.2.0/24")
CLUSTER_CIDRS: tuple[Network, ...] = (IPv4Network("10.244.0.0/16"),)

LOAD_BALANCER_IP = IPv4Address("203.0.113.10")
INGRESS_CLUSTER_IP = IPv4Address("10.96.0.10")

SITE = "site.example.test"
REGISTRY = "registry.example.test"
ANOTHER = "another.example.test"
NAMES = (SITE, REGISTRY, ANOTHER)
FRONTED = "fronted.example.test"
EDGE = "edge.cdn.test"
"""What FRONTED is an alias of: it stands before the load balancer and has addresses of its own, if any."""

REGISTRY_PORT = 5000
DNS_PORT = 53

# The pod networks are routed to the load balancer too: a pod whose traffic to it is not short-circuited
# must get its answer. The load balancer has no default route, so the world has no way out.
# A node reaches the client without the load balancer, which would drop answers that bear its own address.
PLACES: tuple[Place, ...] = (
    Place(
        "lb",
        (IPv4Interface(f"{LB}/24"), IPv4Interface(f"{_LB_OUTSIDE}/24")),
        (Route(POD_CIDR1, NODE1), Route(POD_CIDR2, NODE2)),
    ),
    Place("client", (IPv4Interface(f"{CLIENT}/24"),), (Route(EVERYWHERE, _LB_OUTSIDE),)),
    Place(
        "node1",
        (IPv4Interface(f"{NODE1}/24"),),
        (Route(EVERYWHERE, LB), Route(_OUTSIDE), Route(POD_CIDR2, NODE2)),
    ),
    Place(
        "node2",
        (IPv4Interface(f"{NODE2}/24"),),
        (Route(EVERYWHERE, LB), Route(_OUTSIDE), Route(POD_CIDR1, NODE1)),
    ),
    Place(
        "pod1",
        (IPv4Interface(f"{POD1}/24"),),
        (Route(EVERYWHERE, POD_CIDR1[1]),),
        behind="node1",
        gateways=(IPv4Interface(f"{POD_CIDR1[1]}/24"),),
    ),
    Place(
        "pod2",
        (IPv4Interface(f"{POD2}/24"),),
        (Route(EVERYWHERE, POD_CIDR2[1]),),
        behind="node2",
        gateways=(IPv4Interface(f"{POD_CIDR2[1]}/24"),),
    ),
)
LOAD_BALANCER_IPS: tuple[Address, ...] = (LOAD_BALANCER_IP,)
