"""Whether the answer of DNS verifies a hostname, and what counts while there is none."""

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.agent.convergence import defer_until_ready
from nodeagent.model.addresses import Family
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsQuestion, DnsReply, Facts
from nodeagent.model.objects import ObjectRef
from tests.cases import cases_of
from tests.plan.made_up import (
    FACTS,
    config,
    desired,
    hosts,
    ingress,
    of_name,
    point,
    relay_of,
    service,
    standing_names,
)

NAME = "www.example.net"
DNS = config("hosts: {verify: dns}")
GREEN = service("green", ips=("192.0.2.2",))
FAILURES = [each for each in DnsOutcome if not each.tells]


def told(*addresses: str, unanswered: Iterable[Family] = ()) -> DnsReply:
    """A reply with these addresses; questions for `unanswered` families came to nothing."""
    return DnsReply(DnsOutcome.ADDRESSES, tuple(map(ip_address, addresses)), unanswered=frozenset(unanswered))


def failed(outcome: DnsOutcome = DnsOutcome.TIMEOUT) -> DnsReply:
    return DnsReply(outcome, trouble="192.0.2.53: no")


def knowing(latest: DnsReply | None, before: DnsReply | None, stands_at: Iterable[str]) -> Facts:
    dns = {}
    if latest:
        dns[NAME] = DnsAnswer(latest, latest if latest.outcome.tells else before)
    standing = {NAME: frozenset(map(ip_address, stands_at))} if stands_at else {}
    return replace(FACTS, dns=dns, standing_names=standing)


def planned(
    latest: DnsReply | None, before: DnsReply | None = None, *, stands_at: Iterable[str] = ()
) -> Desired:
    return desired(service(), ingress(NAME), facts=knowing(latest, before, stands_at), options=DNS)


RELAY = relay_of(planned(None))[4]
CLAIMED_BY = ObjectRef("Ingress", "web", "site")
MATTER = frozenset({ip_address("192.0.2.1"), ip_address(RELAY)})
"""What matters in an answer for the first load balancer."""


def test_the_reason_of_a_rejected_hostname_is_the_same_on_all_nodes_for_events() -> None:
    decision = of_name(planned(told("198.51.100.4")), NAME)
    assert "198.51.100.4" in decision.reason
    assert "198.51.100.4" not in decision.stable_reason
    assert "Service ingress/blue (192.0.2.1)" in decision.stable_reason


def test_a_line_that_waits_for_its_relay_stays_verified() -> None:
    """After a reboot, say: HAProxy is not up yet, its names are withdrawn, and DNS is away as well."""
    desire = planned(None, stands_at=[RELAY])
    assert hosts(defer_until_ready(desire, frozenset())) == []
    for reply, code in ((failed(), "Kept"), (told("198.51.100.4"), "NotVerified"), (failed(), "DnsTimeout")):
        facts = replace(FACTS, dns={NAME: DnsAnswer(reply)}, standing_names=standing_names(desire))
        desire = desired(service(), ingress(NAME), facts=facts, options=DNS)
        assert of_name(desire, NAME).code == code


def test_an_answer_for_half_of_the_families_denies_only_what_it_covers() -> None:
    """An IPv4 load balancer's name is disproven by its A alone; that of one with IPv6 might have an AAAA."""
    assert of_name(planned(told("198.51.100.4", unanswered=[6])), NAME).code == "NotVerified"
    facts = replace(FACTS, dns={NAME: DnsAnswer(told("198.51.100.4", unanswered=[6]))})
    both = service(ips=("192.0.2.1", "2001:db8::1"))
    decision = of_name(desired(both, ingress(NAME), facts=facts, options=DNS), NAME)
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "DnsIncomplete")


def test_a_server_that_reads_our_own_lines_says_nothing() -> None:
    """A line that withdraws itself would come and go for ever."""
    decision = of_name(planned(told(RELAY), stands_at=[RELAY]), NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SERVED, "Kept")
    assert all(word in decision.reason for word in (RELAY, "hosts.dnsServers"))
    assert of_name(planned(told(RELAY)), NAME).code == "DnsEchoesHosts"


def test_only_what_nothing_else_decides_is_asked() -> None:
    """Never-list, exclude, allow and the form of a name come before any query, and wildcards are no names."""
    options = config("hosts: {allow: [example.com], exclude: [db.example.net]}")
    claimed = ingress(
        *(NAME, "www.example.com", "x.db.example.net", "localhost", "node1", "kubernetes", "a.cluster.local"),
        *("*.example.net", "bad_name", "192.0.2.7", ""),
    )
    other = ingress("elsewhere.example.net", name="other", points=(point("198.51.100.99"),))
    assert desired(service(), claimed, other, options=options).questions == {
        NAME: DnsQuestion(MATTER, "web", CLAIMED_BY)
    }


_ADDRESSES = st.sampled_from(["192.0.2.1", "2001:db8::1", "198.51.100.4", "2001:db8::4", RELAY])
_REPLIES = st.one_of(
    st.builds(told, *[_ADDRESSES], unanswered=st.frozensets(st.sampled_from([4, 6]), max_size=1)),
    st.sampled_from(FAILURES).map(failed),
    st.sampled_from([DnsOutcome.NXDOMAIN, DnsOutcome.NO_ADDRESS]).map(DnsReply),
)


@given(latest=st.none() | _REPLIES, before=st.none() | _REPLIES, stands=st.booleans())
def test_no_name_is_written_without_a_reason_to_trust_it(
    latest: DnsReply | None, before: DnsReply | None, *, stands: bool
) -> None:
    """What DNS answers with the load balancer's address, or did last; or the block's, until DNS denies it."""
    before = before if before and before.outcome.tells else None
    desire = planned(latest, before, stands_at=[RELAY] if stands else [])
    owner = ip_address("192.0.2.1")
    proven = any(reply and owner in reply.addresses for reply in (latest, before))
    written = hosts(desire) == [f"{RELAY} {NAME}"]
    assert written is (of_name(desire, NAME).status is DecisionStatus.SERVED)
    assert desire.questions == {NAME: DnsQuestion(MATTER, "web", CLAIMED_BY)}
    if written:
        assert proven or stands
    if latest and owner in latest.addresses:
        assert written
    if latest and latest.outcome in (DnsOutcome.NXDOMAIN, DnsOutcome.NO_ADDRESS):
        assert not written
    if stands and (latest is None or not latest.outcome.tells) and before is None:
        assert written


def moving(
    latest: DnsReply | None, before: DnsReply | None = None, *, stands_at: Iterable[str] = ()
) -> Desired:
    """What is planned for a name that an older Ingress claims for one load balancer, a newer for another."""
    return desired(
        service(),
        GREEN,
        ingress(NAME, name="old", created=1),
        ingress(NAME, name="new", created=5, points=(point("192.0.2.2"),)),
        facts=knowing(latest, before, stands_at),
        options=DNS,
    )


@pytest.mark.parametrize(("addresses", "old", "new"), cases_of(__file__, "cases.yaml")["moving"])
def test_a_younger_claim_takes_a_name_from_an_older_that_dns_does_not_confirm(
    addresses: list[str], old: str, new: str
) -> None:
    """A site moves to another controller: the old Ingress is still there. Both claims are asked for."""
    found = moving(told(*addresses))
    assert {each.claimed_by.name: each.code for each in found.names} == {"old": old, "new": new}
    relay = {"old": relay_of(found)[4], "new": relay_of(found, "green")[4]}
    assert hosts(found) == [
        f"{relay[name]} {NAME}" for name, code in (("old", old), ("new", new)) if code == "Verified"
    ]
    assert {ip_address("192.0.2.1"), ip_address("192.0.2.2")} <= found.questions[NAME].addresses


def test_a_name_that_has_moved_stays_with_the_younger_claim_while_dns_is_away() -> None:
    """By the last answer of DNS; after a restart, by the existing line."""
    relay = relay_of(moving(None), "green")[4]
    for found in (moving(failed(), told("192.0.2.2")), moving(failed(), stands_at=[relay])):
        assert "Kept" in {decision.code for decision in found.names}
        assert hosts(found) == [f"{relay} {NAME}"]
