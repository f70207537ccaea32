"""Facts of this node and of DNS: values read once per pass, so that all decisions see the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.model.addresses import Endpoint, Family, IPAddress
from nodeagent.model.objects import ObjectRef
from nodeagent.typed_values import intern

_OTHERS = 4
"""Addresses of an answer that are kept though they can't change a decision: to be shown."""


class DnsOutcome(StrEnum):
    """How the lookup of one hostname ended; all but the first three mean that it failed."""

    ADDRESSES = "addresses"
    NO_ADDRESS = "no_address"
    """The name exists and has neither A nor AAAA (NODATA, RFC 2308, 2.2)."""
    NXDOMAIN = "nxdomain"
    """The name does not exist (RFC 8020)."""
    SERVFAIL = "servfail"
    REFUSED = "refused"
    """REFUSED, another error, or a server that does not query others (no recursion)."""
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    """No packet could be sent, or no connection was made."""
    NO_SERVER = "no_server"
    """No server is known that may be queried."""

    @property
    def tells(self) -> bool:
        """Whether the outcome is about the hostname itself, and not about the path to its DNS."""
        return self in _TELLING


_TELLING = frozenset({DnsOutcome.ADDRESSES, DnsOutcome.NO_ADDRESS, DnsOutcome.NXDOMAIN})


class DnsReply(Struct, frozen=True, gc=False):
    """The outcome of one lookup of a hostname's A and AAAA records.

    `addresses` are sorted, IPv4 first; `more` is the number of others, which can't change a decision.
    `trouble` says why a query was not answered; `unanswered` are the families of those if others were.
    """

    outcome: DnsOutcome
    addresses: tuple[IPAddress, ...] = ()
    trouble: str = ""
    unanswered: frozenset[Family] = frozenset()
    more: int = 0


class DnsAnswer(Struct, frozen=True, gc=False):
    """What is known of a hostname: the latest reply, and the latest that said something about it, if any.

    `failing_since` is when the lookups that fail now began to, in monotonic seconds.
    """

    latest: DnsReply
    last_conclusive: DnsReply | None = None
    failing_since: float | None = None


class Upstreams(Struct, frozen=True):
    """The DNS servers to query in their order; `problem` says why there is none, and what to do."""

    servers: tuple[Endpoint, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DnsQuestion:
    """A hostname that DNS decides: which addresses in an answer can change the decision, and who claims it.

    They are those of load balancers that may get it, and the relay's; of a load balancer's own, `every` one.
    """

    addresses: frozenset[IPAddress]
    namespace: str = ""
    claimed_by: ObjectRef | None = None
    every: bool = False

    def meaning(self, reply: DnsReply | None) -> tuple[object, ...]:
        """Return what of a reply can change a decision: servers that rotate addresses change nothing."""
        return (reply.outcome, self.relevant(reply), reply.unanswered) if reply else ()

    def relevant(self, reply: DnsReply | None) -> frozenset[IPAddress]:
        """Return the addresses of a reply that can change a decision."""
        addresses = frozenset(reply.addresses if reply else ())
        return addresses if self.every else addresses & self.addresses

    def without_others(self, reply: DnsReply) -> DnsReply:
        """Return the reply with few of the addresses that can't change a decision: it is kept in memory."""
        others = [address for address in reply.addresses if address not in self.addresses]
        left_out = frozenset(others[_OTHERS:])
        kept = tuple(address for address in reply.addresses if address not in left_out)
        return replace(reply, addresses=intern(kept), more=len(left_out))


class InterfaceAddress(Struct, frozen=True):
    """An address on one of the node's interfaces; `ours` if nodeagent put it there, as a relay address."""

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

    Attributes:
        source_addresses: Of the node's outgoing connections, at most one per family.
        port_holders: TCP ports that another process has, on every address (0.0.0.0 or ::) or on a relay
            address, each with its user id.
        ipv6_off: What switches IPv6 off here; empty if it is on.
        user_names: The hostnames that the user's own lines of the hosts file set.
        short_circuited: Among the addresses that were checked, those that the Service proxy short-circuits.
        standing_names: The hostnames of the managed block, each with its addresses: as they are in the file,
            and in an agent, as they were desired last.
        standing_at: The load balancer that had each of these addresses then; in an agent alone.
        dns: What DNS has said so far, by hostname.
        takes_wildcards: Whether the hostnames are for CoreDNS; no hosts file knows wildcards.
        notes: What could not be read.
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
    standing_at: Mapping[IPAddress, ObjectRef] = field(default_factory=dict)
    dns: Mapping[str, DnsAnswer] = field(default_factory=dict)
    takes_wildcards: bool = False
    notes: tuple[str, ...] = ()


def port_holder(holders: Mapping[Endpoint, int], bind: Endpoint) -> int | None:
    """Return the user id of the process that has this port, here or on every address; None if none. Pure."""
    everywhere = Endpoint(IPv4Address(0) if bind.address.version == 4 else IPv6Address(0), bind.port)
    holder = holders.get(bind)
    return holders.get(everywhere) if holder is None else holder
