"""What this node says of itself: values read once a pass, so that decisions see one world."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.dns import DnsAnswer

_NOWHERE: frozenset[IPAddress] = frozenset()


class InterfaceAddress(Struct, frozen=True):
    """An address that stands on one of the node's interfaces.

    `ours` is true for a relay address that nodeagent itself put there.
    """

    address: IPAddress
    prefix_length: int
    interface: str
    ours: bool = False


class UserHostsLine(Struct, frozen=True):
    """A line of the hosts file outside the managed block that already sets a name."""

    line_number: int
    address: str
    by_hairpin_proxy: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The node at one moment.

    `source_addresses` are those that the node's outgoing connections bear, at most one a family.
    `port_holders` are TCP ports that the relay can't have, each with the user id of the process that has it:
    on every address (0.0.0.0 or ::), or on a relay address.
    `ipv6_off` says by what IPv6 is switched off here; empty where it is on.
    `user_names` maps each name that the user's own lines of the hosts file set to that line.
    `short_circuited` are addresses that the node's Service proxy was seen to catch, of those worth a look.
    `standing_names` are those of the managed block as it is in the file, each with its addresses;
    `wanted_names` are those of the block as it was desired last.
    `dns` is what DNS said of names so far, name by name; one that was not asked yet is not in it.
    `takes_wildcards` is true where names are written for something that knows wildcards, which no hosts file
    does: CoreDNS.
    `notes` tell what could not be read (for want of permission, say), for the person at the dry run.
    """

    node_name: str
    node_names: frozenset[str] = frozenset()
    addresses: tuple[InterfaceAddress, ...] = ()
    api_servers: frozenset[Endpoint] = frozenset()
    api_server_names: frozenset[str] = frozenset()
    source_addresses: tuple[IPAddress, ...] = ()
    port_holders: Mapping[Endpoint, int] = field(default_factory=dict)
    ipv6_off: str = ""
    user_names: Mapping[str, UserHostsLine] = field(default_factory=dict)
    short_circuited: frozenset[IPAddress] = frozenset()
    standing_names: Mapping[str, frozenset[IPAddress]] = field(default_factory=dict)
    wanted_names: Mapping[str, frozenset[IPAddress]] = field(default_factory=dict)
    dns: Mapping[str, DnsAnswer] = field(default_factory=dict)
    takes_wildcards: bool = False
    notes: tuple[str, ...] = ()

    def addresses_of(self, name: str) -> frozenset[IPAddress]:
        """Return the addresses of a hostname's lines, as they are in the file or were desired last."""
        return self.standing_names.get(name, _NOWHERE) | self.wanted_names.get(name, _NOWHERE)


def port_holder(holders: Mapping[Endpoint, int], bind: Endpoint) -> int | None:
    """The user id of who has this address and port, or this port on every address; None if nobody. Pure."""
    everywhere = Endpoint(IPv4Address(0) if bind.address.version == 4 else IPv6Address(0), bind.port)
    found = holders.get(bind)
    return holders.get(everywhere) if found is None else found
