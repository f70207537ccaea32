"""What DNS says of a name: one reply, and what is known from several."""

from enum import StrEnum

from msgspec import Struct

from nodeagent.model.addresses import Family, IPAddress

LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""One label of a hostname in lower case, as a regular expression (RFC 1123, 2.1)."""
HOSTNAME = rf"{LABEL}(\.{LABEL})*"
LONGEST_HOSTNAME = 253


class DnsOutcome(StrEnum):
    """How the asking for one name ended.

    The first three tell something of the name. All others tell that it could not be asked.
    """

    ADDRESSES = "addresses"
    NO_ADDRESS = "no_address"
    """The name exists and has neither A nor AAAA (NODATA, RFC 2308, 2.2)."""
    NXDOMAIN = "nxdomain"
    """The name does not exist (RFC 8020)."""
    SERVFAIL = "servfail"
    REFUSED = "refused"
    """REFUSED, another error, or a server that does not ask others (no recursion)."""
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    """No packet could be sent, or a packet came back that nobody listens."""
    NO_SERVER = "no_server"
    """No server is known that may be asked."""

    @property
    def tells(self) -> bool:
        """Whether the name itself was told of, and not of the way to its DNS."""
        return self in _TELLING


_TELLING = frozenset({DnsOutcome.ADDRESSES, DnsOutcome.NO_ADDRESS, DnsOutcome.NXDOMAIN})


class DnsReply(Struct, frozen=True):
    """The outcome of asking for a name's A and AAAA once.

    `addresses` are sorted, IPv4 first. `trouble` says in words why a question was not answered;
    `unanswered` are the families it was about where the other's addresses are known. `ttl` is in seconds,
    0 where nothing was told.
    """

    outcome: DnsOutcome
    addresses: tuple[IPAddress, ...] = ()
    trouble: str = ""
    unanswered: frozenset[Family] = frozenset()
    ttl: int = 0


class DnsAnswer(Struct, frozen=True):
    """What is known of a name: the latest reply, and the latest that told something, if any did.

    While DNS answers, the two are the same.
    """

    latest: DnsReply
    told: DnsReply | None = None
