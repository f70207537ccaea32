"""The world's address plan: every address, name and port in it, each said once, in both families.

A host holds a tuple of addresses and a tuple of routes, and each says its own family. A world has one family
or both (`Stack`) and takes of the plan what is of its families: `Place.within`, `within`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Literal, Protocol, TypeAlias, TypeVar, get_args

Address: TypeAlias = IPv4Address | IPv6Address
Interface: TypeAlias = IPv4Interface | IPv6Interface
Network: TypeAlias = IPv4Network | IPv6Network
Family: TypeAlias = Literal[4, 6]
Stack: TypeAlias = Literal[4, 6, "dual"]
"""A world's families: IPv4 alone, IPv6 alone, or both."""
STACKS: tuple[Stack, ...] = get_args(Stack)


def families_of(stack: Stack) -> tuple[Family, ...]:
    """The families of a stack, IPv4 first."""
    return (4, 6) if stack == "dual" else (stack,)


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


_Kind = TypeVar("_Kind", bound=_Versioned)


def within(found: Iterable[_Kind], families: Iterable[Family]) -> tuple[_Kind, ...]:
    """Those of some addresses, networks or routes that are of one of the families, in their order."""
    wanted = set(families)
    return tuple(one for one in found if one.version in wanted)


@dataclass(frozen=True)
class Route:
    """Packets for `destination` leave by the neighbour `via`, or are delivered on eth0 itself without one."""

    destination: Network
    via: Address | None = None

    @property
    def hop(self) -> str:
        """The next hop, as `ip route` takes it."""
        return "dev eth0" if self.via is None else f"via {self.via}"

    @property
    def version(self) -> int:
        """Its family."""
        return self.destination.version


@dataclass(frozen=True)
class Place:
    """The place of one host: its addresses on eth0, its routes, and the node it is behind, if it is a pod."""

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

    def within(self, families: Iterable[Family]) -> "Place":
        """The same place without what is of no such family."""
        wanted = tuple(families)
        return replace(
            self,
            addresses=within(self.addresses, wanted),
            routes=within(self.routes, wanted),
            gateways=within(self.gateways, wanted),
        )


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


# The pod networks are routed to the load balancer too: a pod whose traffic to it is not short-circuited
# must get its answer. The load balancer has no default route, so the world has no way out.
# A node reaches the client without the load balancer, which would drop answers that have its own address.
PLACES: tuple[Place, ...] = (
    Place(
        "lb",
        (
            IPv4Interface(f"{LB}/24"),
            IPv6Interface(f"{LB_6}/64"),
            IPv4Interface(f"{_LB_OUTSIDE}/24"),
            IPv6Interface(f"{_LB_OUTSIDE_6}/64"),
        ),
        (
            Route(POD_CIDR1, NODE1),
            Route(POD_CIDR2, NODE2),
            Route(POD_CIDR1_6, NODE1_6),
            Route(POD_CIDR2_6, NODE2_6),
        ),
    ),
    Place(
        "client",
        (IPv4Interface(f"{CLIENT}/24"), IPv6Interface(f"{CLIENT_6}/64")),
        (Route(EVERYWHERE, _LB_OUTSIDE), Route(EVERYWHERE6, _LB_OUTSIDE_6)),
    ),
    Place(
        "node1",
        (IPv4Interface(f"{NODE1}/24"), IPv6Interface(f"{NODE1_6}/64")),
        (
            Route(EVERYWHERE, LB),
            Route(_OUTSIDE),
            Route(POD_CIDR2, NODE2),
            Route(EVERYWHERE6, LB_6),
            Route(_OUTSIDE_6),
            Route(POD_CIDR2_6, NODE2_6),
        ),
    ),
    Place(
        "node2",
        (IPv4Interface(f"{NODE2}/24"), IPv6Interface(f"{NODE2_6}/64")),
        (
            Route(EVERYWHERE, LB),
            Route(_OUTSIDE),
            Route(POD_CIDR1, NODE1),
            Route(EVERYWHERE6, LB_6),
            Route(_OUTSIDE_6),
            Route(POD_CIDR1_6, NODE1_6),
        ),
    ),
    Place(
        "pod1",
        (IPv4Interface(f"{POD1}/24"), IPv6Interface(f"{POD1_6}/64")),
        (Route(EVERYWHERE, POD_CIDR1[1]), Route(EVERYWHERE6, POD_CIDR1_6[1])),
        behind="node1",
        gateways=(IPv4Interface(f"{POD_CIDR1[1]}/24"), IPv6Interface(f"{POD_CIDR1_6[1]}/64")),
    ),
    Place(
        "pod2",
        (IPv4Interface(f"{POD2}/24"), IPv6Interface(f"{POD2_6}/64")),
        (Route(EVERYWHERE, POD_CIDR2[1]), Route(EVERYWHERE6, POD_CIDR2_6[1])),
        behind="node2",
        gateways=(IPv4Interface(f"{POD_CIDR2[1]}/24"), IPv6Interface(f"{POD_CIDR2_6[1]}/64")),
    ),
)


def bracketed(address: Address) -> str:
    """An address as it is written before a port."""
    return f"[{address}]" if address.version == 6 else str(address)


def place_of(host: str) -> Place:
    """Return the place of a host; a name that is not in the plan is a KeyError."""
    return {place.host: place for place in PLACES}[host]


def address_of(host: str, family: Family) -> Address:
    """A host's address in a family."""
    return place_of(host).within((family,)).address
