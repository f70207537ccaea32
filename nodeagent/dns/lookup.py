"""Queries DNS servers for a hostname's addresses: by UDP, by TCP for long answers, several servers in turn.

systemd-resolved's stub listeners answer from /etc/hosts before they ask a server (dns_query_try_etc_hosts in
resolved-dns-query.c; 127.0.0.54 looks there, too, despite its "bypass" mode), so nodeagent's own lines would
verify themselves: the servers behind them are queried instead, which resolved lists in a file of its own
(systemd-resolved.service(8), "/etc/resolv.conf"). Another resolver on this host (unbound, NetworkManager's
dnsmasq) may be as good as any; the verification notices if it answers with the relay's own address.

The only importer of dnspython, whose import costs 0.07 s: import this module only where hostnames are looked
up. The library picks random ids and ports, and ignores answers that do not match its query.
"""

import os
import posixpath
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeAlias

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
from msgspec import Struct

from nodeagent.config.option_types import DNS_PORT
from nodeagent.config.options import HostsOptions
from nodeagent.model.addresses import Endpoint, Family, IPAddress, sort_key
from nodeagent.model.facts import DnsOutcome, DnsReply
from nodeagent.typed_values import intern

_STUBS = ("127.0.0.53", "127.0.0.54")
_MOST_SERVERS = 3
"""As many as the C libraries query (resolv.conf(5), MAXNS)."""
_MOST_LINKS = 8
_RESOLVED = "run/systemd/resolve/resolv.conf"
_OWN = Path("/etc/resolv.conf")


class Upstreams(Struct, frozen=True):
    """The servers in their order; `problem` says why there is none, and what to do."""

    servers: tuple[Endpoint, ...] = ()
    problem: str = ""


def find_upstreams(options: HostsOptions, own: Path = _OWN) -> Upstreams:
    """Return the servers to query now; reads up to four small files each time, so that no change is missed.

    The first source that names a server decides: `hosts.dnsServers`; resolv.conf next to `hosts.file`; the
    servers behind the node's systemd-resolved. If the node's /etc is not this process's own, then the same
    two of this process: the kubelet makes its `own` resolv.conf from the node's (dnsPolicy: Default), unless
    it is for the cluster's DNS.
    """
    if options.dns_servers:
        return Upstreams(tuple(server.endpoint for server in options.dns_servers))
    node = Path(options.file).with_name("resolv.conf")
    problems = []
    for resolv_conf in dict.fromkeys((node, own)):
        root = resolv_conf.parent.parent
        cluster_domain = "" if resolv_conf == node else options.cluster_domain
        for found in (_read_list(resolv_conf, root, cluster_domain), _read_list(root / _RESOLVED, root)):
            if found.servers:
                return found
            problems.append(found.problem)
    return Upstreams(problem=f"no DNS server can be queried ({'; '.join(problems)}): set hosts.dnsServers")


def _read_list(file: Path, root: Path, cluster_domain: str = "") -> Upstreams:
    """Return the servers of a resolv.conf (resolv.conf(5)); invalid addresses are ignored.

    None are left of one that the kubelet made for the cluster's DNS, as its search list shows.
    """
    try:
        text = _followed(file, root).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Upstreams(problem=f"{file} can't be read: {error.strerror}")
    named: list[IPAddress] = []
    search: list[str] = []
    for keyword, *values in filter(None, map(str.split, text.splitlines())):
        if keyword == "nameserver" and values:
            with suppress(ValueError):
                named.append(ip_address(values[0]))
        elif keyword in {"search", "domain"}:
            search = [value.rstrip(".").lower() for value in values]
    if cluster_domain and f"svc.{cluster_domain}" in search:
        return Upstreams(problem=f"{file} names the cluster's own DNS")
    asked = [address for address in dict.fromkeys(named) if str(address) not in _STUBS]
    if asked:
        return Upstreams(tuple(Endpoint(address, DNS_PORT) for address in asked[:_MOST_SERVERS]))
    only_stub = "only systemd-resolved's stub, which answers from /etc/hosts"
    return Upstreams(problem=f"{file} names {only_stub if named else 'no server'}")


def _followed(file: Path, root: Path) -> Path:
    """Return the file to which the link `file` points on the node, whose root directory is `root` here."""
    for _ in range(_MOST_LINKS):
        try:
            target = os.readlink(file)  # noqa: PTH115 - text, joined below as the node would
        except OSError:
            return file  # Not a link, or missing: opening it shows which.
        place = posixpath.join("/", file.parent.relative_to(root), target)
        file = root / posixpath.normpath(place).lstrip("/")
    return file


_TRY_SECONDS: Final = 1.5
"""The time that a server has for one answer."""
_ROUNDS: Final = 2
_LONGEST_SECONDS: Final = 6.0
_MOST_HOPS: Final = 4
_LARGEST: Final = 2048
"""Bytes of an answer, some 125 addresses: to read one takes 5 ms of CPU time, 64 KiB a third of a second."""
_QUESTIONS: Final[Mapping[Family, dns.rdatatype.RdataType]] = {4: dns.rdatatype.A, 6: dns.rdatatype.AAAA}
_FAILURES: Final = (DnsOutcome.SERVFAIL, DnsOutcome.REFUSED, DnsOutcome.TIMEOUT, DnsOutcome.UNREACHABLE)
"""Of servers, the most informative first: a reported error before a missing answer."""
_Part: TypeAlias = DnsReply | dns.name.Name
"""What is known of one family: a server's reply, or how far the chain of aliases was followed."""


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
        parts: dict[Family, DnsReply] = {}
        for family, question in _QUESTIONS.items():
            part: _Part = dns.name.from_text(name)
            for _ in range(1 + _MOST_HOPS):
                if isinstance(part, dns.name.Name):
                    part = self._ask_around(part, question, upstreams.servers, deadline)
            if isinstance(part, dns.name.Name):
                part = DnsReply(DnsOutcome.SERVFAIL, trouble="its chain of aliases is too long")
            parts[family] = part
            if part.outcome in (DnsOutcome.TIMEOUT, DnsOutcome.UNREACHABLE):
                break  # The second query would also wait in vain.
        return _combined(parts)

    def _ask_around(
        self,
        name: dns.name.Name,
        question: dns.rdatatype.RdataType,
        servers: tuple[Endpoint, ...],
        deadline: float,
    ) -> _Part:
        failures: dict[Endpoint, DnsReply] = {}
        for server in sorted(servers, key=lambda server: server != self._good) * _ROUNDS:
            seconds = min(_TRY_SECONDS, deadline - time.monotonic())
            if seconds <= 0:
                break
            part = _ask_server(server, name, question, seconds)
            if isinstance(part, dns.name.Name) or part.outcome.tells:
                self._good = server
                return part
            failures[server] = part
        said = "; ".join(f"{server.address}: {part.trouble}" for server, part in failures.items())
        outcomes = (part.outcome for part in failures.values())
        worst = min(outcomes, key=_FAILURES.index, default=DnsOutcome.TIMEOUT)
        return DnsReply(worst, trouble=said or "no time was left to query it")


def _ask_server(
    server: Endpoint, name: dns.name.Name, question: dns.rdatatype.RdataType, seconds: float
) -> _Part:
    """Send one query to one server: without EDNS, which not every server knows. Long answers come by TCP."""
    try:
        return _read(_exchange(server, dns.message.make_query(name, question), seconds), question)
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
    where = str(server.address)
    try:
        with _BoundedSocket(family, socket.SOCK_DGRAM) as udp:
            udp.settimeout(0)
            answer = dns.query.udp(
                query,
                where,
                seconds,
                server.port,
                ignore_unexpected=True,
                ignore_errors=True,
                raise_on_truncation=True,
                sock=udp,
            )
    except dns.message.Truncated:
        with _BoundedSocket(family, socket.SOCK_STREAM) as tcp:
            tcp.settimeout(seconds)
            tcp.connect((where, server.port))
            tcp.settimeout(0)
            answer = dns.query.tcp(query, where, seconds, sock=tcp)
    if not isinstance(answer, dns.message.QueryMessage):
        raise dns.message.NotQueryResponse
    return answer


def _read(message: dns.message.QueryMessage, question: dns.rdatatype.RdataType) -> _Part:
    """Return what an answer says. Raises DNSException if it contradicts itself.

    Without addresses and an SOA, it does not say that there are none (RFC 2308, 2.2): it is a chain to
    follow, the referral of a server that does not recurse, or the answer of one too simple to send an SOA.
    """
    rcode = message.rcode()
    if rcode not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        outcome = DnsOutcome.SERVFAIL if rcode == dns.rcode.SERVFAIL else DnsOutcome.REFUSED
        return DnsReply(outcome, trouble=dns.rcode.to_text(rcode))
    chain = message.resolve_chaining()
    # An SOA says how long there will be nothing (RFC 2308, 5).
    has_soa = any(records.rdtype == dns.rdatatype.SOA for records in message.authority)
    ttl = chain.minimum_ttl if has_soa else 0
    if rcode == dns.rcode.NXDOMAIN:
        return DnsReply(DnsOutcome.NXDOMAIN, ttl=ttl)
    if chain.answer is not None:
        addresses = tuple(ip_address(record.address) for record in chain.answer)
        return DnsReply(DnsOutcome.ADDRESSES, addresses, ttl=chain.minimum_ttl)
    if chain.cnames and not has_soa:
        return chain.canonical_name
    if has_soa or message.flags & (dns.flags.AA | dns.flags.RA):
        return DnsReply(DnsOutcome.NO_ADDRESS, ttl=ttl)
    asked = dns.rdatatype.to_text(question)
    return DnsReply(DnsOutcome.REFUSED, trouble=f"does not look up {asked} at other servers (no recursion)")


def _combined(parts: Mapping[Family, DnsReply]) -> DnsReply:
    """Return both answers as one reply.

    Servers that know no AAAA answer it with NXDOMAIN or SERVFAIL although the name has an A (RFC 4074, 4):
    so addresses of one family count, whatever happened to the other query.
    """
    silent = {family: part for family, part in parts.items() if not part.outcome.tells}
    found = [part for part in parts.values() if part.addresses]
    if found:
        outcome = DnsOutcome.ADDRESSES
    elif silent:
        outcome = next(iter(silent.values())).outcome
    else:
        unknown = all(part.outcome is DnsOutcome.NXDOMAIN for part in parts.values())
        outcome = DnsOutcome.NXDOMAIN if unknown else DnsOutcome.NO_ADDRESS
    return DnsReply(
        outcome,
        intern(tuple(sorted({address for part in found for address in part.addresses}, key=sort_key))),
        "; ".join(dict.fromkeys(part.trouble for part in silent.values())),
        intern(frozenset(silent if found else ())),
        ttl=min(part.ttl for part in found or parts.values()),
    )
