"""What is read from the answers of DNS servers, odd ones above all: made up, but in real packets."""

import socket
import time
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any
from unittest.mock import Mock

import dns.flags
import dns.message
import dns.query
import dns.rdatatype
import pytest

from nodeagent.dns import lookup
from nodeagent.dns.lookup import Resolver
from nodeagent.model.addresses import Endpoint
from nodeagent.model.facts import DnsOutcome, DnsReply, Upstreams
from tests.cases import cases_of
from tests.clock import Clock
from tests.dns.made_up_server import MadeUpServer, Message, Replying, Transport, answer

CASES = cases_of(__file__, "cases.yaml")
NAME = "www.example.com"
_SOA = "example.com. 300 SOA ns.example.com. root.example.com. 1 2 3 4 77"


def zone(*records: str, rcode: str = "NOERROR") -> Replying:
    """A well-behaved server: the records that fit the question, or that there are none."""

    def replying(query: Message, _transport: Transport) -> Iterable[bytes]:
        kind = dns.rdatatype.to_text(query.question[0].rdtype)
        fitting = [record for record in records if record.split()[2] in (kind, "CNAME")]
        yield answer(query, *(fitting or [_SOA]), rcode=rcode).to_wire()

    return replying


def alike(rcode: str = "NOERROR", flags: int = dns.flags.RA) -> Replying:
    """A server that answers every question so, without a record."""
    return lambda query, _transport: (answer(query, rcode=rcode, flags=flags).to_wire(),)


def truncating(records: list[str], cut: str = "") -> Replying:
    """A server whose answer does not fit into a packet: over UDP, there is only what was cut off so far."""

    def replying(query: Message, transport: Transport) -> Iterable[bytes]:
        if query.question[0].rdtype != dns.rdatatype.A:
            yield answer(query, _SOA).to_wire()
        elif transport == "tcp":
            yield answer(query, *records).to_wire(max_size=65535)
        else:
            yield answer(query, *([cut] * bool(cut)), flags=dns.flags.RA | dns.flags.TC).to_wire()

    return replying


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers here are as slow as the machine is busy."""
    monkeypatch.setattr(lookup, "_TRY_SECONDS", 30.0)


def ask(replying: Replying, name: str = NAME) -> DnsReply:
    with MadeUpServer(replying) as server:
        return Resolver(lambda: Upstreams((server.endpoint,))).ask(name, seconds=60)


def addresses(reply: DnsReply) -> list[str]:
    return [str(address) for address in reply.addresses]


@pytest.mark.parametrize("case", CASES["zones"].values(), ids=CASES["zones"])
def test_what_a_zone_answers(case: dict[str, Any]) -> None:
    reply = ask(zone(*case["records"], rcode=case.get("rcode", "NOERROR")), case.get("name", NAME))
    assert [reply.outcome.value, addresses(reply)] == case["reply"]
    assert reply.trouble == ""


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_an_answer_that_is_too_long_is_not_read(transport: Transport) -> None:
    """64 KiB of records took a third of a second of CPU time: a tenant's server could send them each time."""
    many = [f"{NAME}. 60 A 192.0.{index // 200}.{index % 200}" for index in range(400)]

    def in_one_packet(query: Message, _: Transport) -> Iterable[bytes]:
        yield answer(query, *many).to_wire(max_size=65535)

    reply = ask(truncating(many) if transport == "tcp" else in_one_packet)
    assert (reply.outcome, reply.addresses) == (DnsOutcome.SERVFAIL, ())
    assert "an answer of more than 2048 bytes" in reply.trouble


def test_the_hostname_is_queried_as_it_is() -> None:
    """No search domain is ever tried, though the machine's resolv.conf may have some."""
    with MadeUpServer(zone(rcode="NXDOMAIN")) as server:
        Resolver(lambda: Upstreams((server.endpoint,))).ask("www")
        assert server.asked == ["A www. udp", "AAAA www. udp"]


@pytest.mark.parametrize(
    ("alias", "flags", "outcome"),
    [
        ("lb.example.net.", dns.flags.RA, "NO_ADDRESS"),
        ("lb.example.net.", dns.flags.AA, "REFUSED"),
        (f"{NAME}.", dns.flags.RA, "SERVFAIL"),
    ],
)
def test_an_alias_alone_is_no_address(alias: str, flags: int, outcome: str) -> None:
    """As for glibc's resolver; but a server that does not follow aliases says nothing of the name."""

    def replying(query: Message, _transport: Transport) -> Iterable[bytes]:
        yield answer(query, f"{NAME}. 60 CNAME {alias}", flags=flags).to_wire()

    reply = ask(replying)
    assert (reply.outcome, reply.addresses) == (DnsOutcome[outcome], ())


@pytest.mark.parametrize("rcode", ["NXDOMAIN", "SERVFAIL"])
def test_addresses_count_though_the_other_query_is_answered_badly(rcode: str) -> None:
    """Some load balancers' DNS knows no AAAA and says so in a wrong way (RFC 4074)."""

    def replying(query: Message, transport: Transport) -> Iterable[bytes]:
        if query.question[0].rdtype == dns.rdatatype.A:
            yield answer(query, f"{NAME}. 60 A 192.0.2.1").to_wire()
        else:
            yield from alike(rcode)(query, transport)

    reply = ask(replying)
    assert (reply.outcome, addresses(reply)) == (DnsOutcome.ADDRESSES, ["192.0.2.1"])
    assert reply.trouble == ("127.0.0.1: SERVFAIL" if rcode == "SERVFAIL" else "")


@pytest.mark.parametrize(("rcode", "outcome", "trouble"), CASES["errors"])
def test_an_error_says_nothing_of_the_name(rcode: str, outcome: str, trouble: str) -> None:
    """The problem has the server's own words. An empty answer without recursion means: ask elsewhere."""
    reply = ask(alike(rcode, flags=0))
    assert (reply.outcome.name, reply.outcome.tells) == (outcome, False)
    assert reply.trouble.startswith(f"127.0.0.1: {trouble}")


def test_what_does_not_fit_into_a_packet_is_asked_for_by_tcp() -> None:
    """The truncated packet's own records do not count."""
    many = [f"{NAME}. 60 A 192.0.2.{number}" for number in range(1, 101)]
    reply = ask(truncating(many, f"{NAME}. 60 A 203.0.113.66"))
    assert len(reply.addresses) == 100
    assert ip_address("203.0.113.66") not in reply.addresses


def test_a_server_that_does_not_know_edns_is_asked_without_it() -> None:
    """It answers FORMERR to what it does not know."""

    def replying(query: Message, _transport: Transport) -> Iterable[bytes]:
        if query.edns >= 0:
            refusal = answer(query, rcode="FORMERR")
            refusal.use_edns(False)  # noqa: FBT003 - dnspython's own form
            yield refusal.to_wire()
        else:
            yield from zone(f"{NAME}. 60 A 192.0.2.1")(query, "udp")

    assert addresses(ask(replying)) == ["192.0.2.1"]


def test_forged_answers_are_waited_past() -> None:
    """A wrong id, another name, an answer that is none: the true one comes after them."""

    def replying(query: Message, _transport: Transport) -> Iterable[bytes]:
        forged = answer(query, f"{NAME}. 60 A 203.0.113.66")
        forged.id ^= 1
        yield forged.to_wire()
        other = dns.message.make_query("other.example.com", query.question[0].rdtype, id=query.id)
        yield answer(other, "other.example.com. 60 A 203.0.113.66").to_wire()
        yield query.to_wire()
        yield b"\x00garbage"
        yield from zone(f"{NAME}. 60 A 192.0.2.1")(query, "udp")

    assert addresses(ask(replying)) == ["192.0.2.1"]


@pytest.mark.parametrize(("forged", "outcome"), [(99, "ADDRESSES"), (100, "SERVFAIL")])
def test_a_flood_of_forged_answers_is_given_up(forged: int, outcome: str) -> None:
    """To look at each would take a core for as long as a query may last."""

    def replying(query: Message, transport: Transport) -> Iterable[bytes]:
        yield from [query.to_wire()] * forged
        yield from zone(f"{NAME}. 60 A 192.0.2.1")(query, transport)

    assert ask(replying).outcome is DnsOutcome[outcome]


def test_silence_ends_in_time() -> None:
    """And the second question is not asked, which would wait as long."""
    with MadeUpServer(lambda _query, _transport: ()) as server:
        began = time.monotonic()
        reply = Resolver(lambda: Upstreams((server.endpoint,))).ask(NAME, seconds=0.4)
        assert time.monotonic() - began < 5
        assert (reply.outcome, reply.trouble) == (DnsOutcome.TIMEOUT, "127.0.0.1: no answer in time")
        assert server.asked == [f"A {NAME}. udp"]


def test_a_lookup_takes_six_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def silent(_server: Endpoint, _query: Message, seconds: float) -> None:
        clock.now += seconds
        raise TimeoutError

    monkeypatch.setattr(lookup, "time", Mock(monotonic=clock))
    monkeypatch.setattr(lookup, "_exchange", silent)
    began = clock.now
    Resolver(lambda: Upstreams((Endpoint(ip_address("192.0.2.53"), 53),))).ask(NAME)
    assert clock.now == began + 6


def test_a_server_that_fails_is_passed_over_and_the_one_that_answers_remembered() -> None:
    with MadeUpServer(zone(rcode="SERVFAIL")) as bad, MadeUpServer(zone(f"{NAME}. 60 A 192.0.2.1")) as good:
        resolver = Resolver(lambda: Upstreams((bad.endpoint, good.endpoint)))
        for _ in range(3):
            assert addresses(resolver.ask(NAME)) == ["192.0.2.1"]
        assert bad.asked == [f"A {NAME}. udp"]


def test_without_a_server_the_reason_is_reported() -> None:
    reply = Resolver(lambda: Upstreams(problem="none to be had")).ask(NAME)
    assert reply == DnsReply(DnsOutcome.NO_SERVER, trouble="none to be had")


def test_a_server_out_of_reach_is_reported_as_such() -> None:
    """No socket may send to a broadcast address without permission."""
    nowhere = Endpoint(ip_address("255.255.255.255"), 53)
    reply = Resolver(lambda: Upstreams((nowhere,))).ask(NAME)
    assert reply.outcome is DnsOutcome.UNREACHABLE
    assert reply.trouble.startswith("255.255.255.255: ")


@pytest.mark.parametrize("transport", ["sendto", "connect"])
def test_a_link_local_server_is_queried_on_its_interface(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As networks with IPv6 alone announce it; by TCP after a truncated answer."""
    sending = Mock(side_effect=OSError("no such server"))
    monkeypatch.setattr(f"nodeagent.dns.lookup._BoundedSocket.{transport}", sending)
    if transport == "connect":
        monkeypatch.setattr(dns.query, "udp", Mock(side_effect=dns.message.Truncated))
    reply = Resolver(lambda: Upstreams((Endpoint(ip_address("fe80::1%lo"), 53),))).ask(NAME)
    assert reply.trouble == "fe80::1%lo: no such server"
    assert sending.call_args.args[-1] == ("fe80::1", 53, 0, socket.if_nametoindex("lo"))
