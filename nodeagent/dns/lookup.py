"""Queries DNS servers for a hostname's addresses: by UDP, by TCP for long answers, several servers in turn.

The only importer of dnspython, whose import costs 0.07 s: import this module only where hostnames are looked
up. The library picks random ids and ports, and ignores answers that do not match its query.
"""

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

import dns.exception
import dns.flags
import dns.inet
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype

from nodeagent.model.addresses import Endpoint, Family, sort_key
from nodeagent.model.facts import DnsOutcome, DnsReply, Upstreams
from nodeagent.typed_values import intern

_TRY_SECONDS: Final = 1.5
"""The time that a server has for one answer."""
_LONGEST_SECONDS: Final = 6.0
_LARGEST: Final = 2048
"""Bytes of an answer, some 125 addresses: to read one takes 5 ms of CPU time, 64 KiB a third of a second."""
_QUESTIONS: Final[Mapping[Family, dns.rdatatype.RdataType]] = {4: dns.rdatatype.A, 6: dns.rdatatype.AAAA}
_FAILURES: Final = (DnsOutcome.SERVFAIL, DnsOutcome.REFUSED, DnsOutcome.TIMEOUT, DnsOutcome.UNREACHABLE)
_COUNTING: Final = (DnsOutcome.ADDRESSES, *_FAILURES, DnsOutcome.NO_ADDRESS, DnsOutcome.NXDOMAIN)
"""Of several outcomes, the first of these counts; of failures, a reported error before a missing answer."""


class Resolver:
    """Looks up hostnames at the servers that `upstreams` returns. May be used by any number of threads.

    The server that answered last is queried first, so that a dead one costs its time only once.
    """

    def __init__(self, upstreams: Callable[[], Upstreams]) -> None:
        self._upstreams = upstreams
        self._good: Endpoint | None = None

    def ask(self, name: str, seconds: float = _LONGEST_SECONDS) -> DnsReply:
        """Look up A and AAAA of `name`, in ASCII and absolute, within about `seconds`. A failure is a reply.

        Each server is tried up to twice. A server's failure (SERVFAIL, REFUSED, no answer) does not count as
        long as another server has an answer.
        """
        upstreams = self._upstreams()
        if not upstreams.servers:
            return DnsReply(DnsOutcome.NO_SERVER, trouble=upstreams.problem)
        deadline = time.monotonic() + seconds
        replies: dict[Family, DnsReply] = {}
        for family, question in _QUESTIONS.items():
            query = dns.message.make_query(name, question)
            replies[family] = self._ask_each(query, upstreams.servers, deadline)
            if replies[family].outcome in (DnsOutcome.TIMEOUT, DnsOutcome.UNREACHABLE):
                break  # The second query would also wait in vain.
        return _combined(replies)

    def _ask_each(self, query: dns.message.Message, servers: Iterable[Endpoint], deadline: float) -> DnsReply:
        failures: dict[Endpoint, DnsReply] = {}
        for server in 2 * sorted(servers, key=lambda server: server != self._good):
            seconds = min(_TRY_SECONDS, deadline - time.monotonic())
            if seconds <= 0:
                break
            reply = _ask_server(server, query, seconds)
            if reply.outcome.tells:
                self._good = server
                return reply
            failures[server] = reply
        trouble = "; ".join(f"{server.address}: {reply.trouble}" for server, reply in failures.items())
        outcomes = (reply.outcome for reply in failures.values())
        counting = min(outcomes, key=_COUNTING.index, default=DnsOutcome.TIMEOUT)
        return DnsReply(counting, trouble=trouble or "no time was left to query it")


def _ask_server(server: Endpoint, query: dns.message.Message, seconds: float) -> DnsReply:
    """Send one query to one server: without EDNS, which not every server knows. Long answers come by TCP."""
    try:
        return _read(_exchange(server, query, seconds))
    except (dns.exception.Timeout, TimeoutError):
        return DnsReply(DnsOutcome.TIMEOUT, trouble="no answer in time")
    except dns.exception.TooBig:
        return DnsReply(DnsOutcome.SERVFAIL, trouble=f"an answer of more than {_LARGEST} bytes")
    except (OSError, EOFError) as error:
        return DnsReply(DnsOutcome.UNREACHABLE, trouble=str(error) or "the connection was closed")
    except dns.exception.DNSException as error:
        return DnsReply(DnsOutcome.SERVFAIL, trouble=f"an invalid answer ({type(error).__name__})")


_MOST_DATAGRAMS: Final = 100
"""Of one query: a flood of others' answers would take a core for as long as the query lasts."""


class _BoundedSocket(socket.socket):
    """Takes no answer that is too long, by TCP not even to receive it, and no flood of answers."""

    received = 0

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        if size > _LARGEST:
            raise dns.exception.TooBig
        return super().recv(size, flags)

    def recvfrom(self, size: int, flags: int = 0, /) -> tuple[bytes, Any]:
        answer, sender = super().recvfrom(size, flags)
        self.received += 1
        if self.received > _MOST_DATAGRAMS:
            raise dns.query.BadResponse
        if len(answer) > _LARGEST:
            raise dns.exception.TooBig
        return answer, sender


def _exchange(server: Endpoint, query: dns.message.Message, seconds: float) -> dns.message.QueryMessage:
    family = socket.AF_INET if server.address.version == 4 else socket.AF_INET6
    where, port = str(server.address), server.port
    try:
        with _BoundedSocket(family, socket.SOCK_DGRAM) as udp:
            udp.settimeout(0)
            ask = partial(dns.query.udp, query, where, seconds, port, sock=udp)
            answer = ask(raise_on_truncation=True, ignore_unexpected=True, ignore_errors=True)
    except dns.message.Truncated:
        with _BoundedSocket(family, socket.SOCK_STREAM) as tcp:
            tcp.settimeout(seconds)
            tcp.connect(dns.inet.low_level_address_tuple((where, port)))  # A link-local one has a scope.
            tcp.settimeout(0)
            answer = dns.query.tcp(query, where, seconds, sock=tcp)
    if not isinstance(answer, dns.message.QueryMessage):
        raise dns.message.NotQueryResponse
    return answer


def _read(message: dns.message.QueryMessage) -> DnsReply:
    """Return what an answer says. Raises DNSException if it contradicts itself.

    Without addresses and an SOA, it does not say that there are none (RFC 2308, 2.2): it is an alias that was
    not followed, the referral of a server that does not recurse, or the answer of one too simple for an SOA.
    """
    rcode = message.rcode()
    if rcode == dns.rcode.NXDOMAIN:
        return DnsReply(DnsOutcome.NXDOMAIN)
    if rcode != dns.rcode.NOERROR:
        outcome = DnsOutcome.SERVFAIL if rcode == dns.rcode.SERVFAIL else DnsOutcome.REFUSED
        return DnsReply(outcome, trouble=dns.rcode.to_text(rcode))
    chain = message.resolve_chaining()
    if chain.answer is not None:
        return DnsReply(DnsOutcome.ADDRESSES, tuple(ip_address(record.address) for record in chain.answer))
    has_soa = any(records.rdtype == dns.rdatatype.SOA for records in message.authority)
    if has_soa or message.flags & (dns.flags.RA if chain.cnames else dns.flags.RA | dns.flags.AA):
        return DnsReply(DnsOutcome.NO_ADDRESS)
    rdtype = dns.rdatatype.to_text(message.question[0].rdtype)
    return DnsReply(DnsOutcome.REFUSED, trouble=f"does not look up {rdtype} at other servers (no recursion)")


def _combined(replies: Mapping[Family, DnsReply]) -> DnsReply:
    """Return both answers as one reply.

    Servers that know no AAAA answer it with NXDOMAIN or SERVFAIL although the name has an A (RFC 4074, 4):
    so addresses of one family count, whatever happened to the other query.
    """
    silent = {family: reply for family, reply in replies.items() if not reply.outcome.tells}
    addresses = sorted({address for reply in replies.values() for address in reply.addresses}, key=sort_key)
    return DnsReply(
        min((reply.outcome for reply in replies.values()), key=_COUNTING.index),
        intern(tuple(addresses)),
        "; ".join(dict.fromkeys(reply.trouble for reply in silent.values())),
        intern(frozenset(silent if addresses else ())),
    )
