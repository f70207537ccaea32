"""Which name is asked when. Time is told, none passes."""

import math
from collections.abc import Iterable
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.agent.dns.agenda import Agenda, pause_after
from nodeagent.model.dns import DnsOutcome, DnsReply

LEAST = 30.0


def taken(agenda: Agenda, now: float) -> list[str]:
    """All names that may be asked now."""
    found = []
    while (name := agenda.take(now)) is not None:
        found.append(name)
    return found


def names(count: int) -> list[str]:
    """So many names, in order."""
    return [f"n{number:05}.example.com" for number in range(count)]


def of_one(*found: str) -> dict[str, str]:
    """These names, all of one namespace."""
    return dict.fromkeys(found, "team")


def test_namespaces_take_turns() -> None:
    """Twenty thousand names of one namespace don't keep another's single name waiting, new or not."""
    agenda = Agenda()
    agenda.want(of_one(*names(20_000)) | {"victim.example.net": "victim"})
    assert "victim.example.net" in [agenda.take(100) for _ in range(2)]
    while (name := agenda.take(100)) is not None:
        agenda.asked(name, due=101)
    agenda.asked("victim.example.net", due=130)
    agenda.want(dict.fromkeys(names(50), "team") | {"victim.example.net": "victim"})
    asked = [agenda.take(130 + tick / 5) for tick in range(6)]
    assert "victim.example.net" in asked


def test_a_new_name_is_asked_at_once_and_again_when_it_is_due() -> None:
    """Not while it is being asked, nor before its time."""
    agenda = Agenda()
    agenda.want(of_one("a"))
    assert agenda.pause(100) == 0
    assert taken(agenda, 100) == ["a"]
    assert agenda.pause(100) == math.inf
    agenda.asked("a", due=130)
    assert (agenda.pause(100), taken(agenda, 129.9), taken(agenda, 130)) == (30, [], ["a"])


def test_a_thousand_new_names_are_asked_within_twenty_seconds() -> None:
    """Fifty a second, in their order, however often somebody looks."""
    agenda = Agenda()
    agenda.want(of_one(*names(1000)))
    asked = [taken(agenda, 100 + tick / 10) for tick in range(200)]
    assert list(chain.from_iterable(asked)) == names(1000)
    assert max(sum(len(asked[tick + more]) for more in range(10)) for tick in range(10, 190)) <= 50


def test_names_asked_before_have_a_smaller_allowance() -> None:
    """Five a second, though their TTLs say otherwise; and a new name does not wait behind them."""
    agenda = Agenda(first_per_second=1000)
    agenda.want(of_one(*names(1000)))
    for name in taken(agenda, 100):
        agenda.asked(name, due=101)
    asked = sum(len(taken(agenda, 110 + tick / 100)) for tick in range(1000))
    assert 50 <= asked <= 55
    agenda.want(of_one(*names(1000), "new"))
    assert agenda.take(120) == "new"


def test_a_name_that_nobody_wants_any_more_is_not_asked() -> None:
    """Wherever it was: new, waiting, or just being asked."""
    agenda = Agenda()
    agenda.want(of_one("asked", "new", "waiting"))
    assert agenda.take(100) == "asked"
    assert agenda.take(100) == "new"
    agenda.asked("new", due=130)
    agenda.want({})
    agenda.asked("asked", due=130)
    assert taken(agenda, 1000) == []
    assert agenda.pause(1000) == math.inf


def test_a_name_that_comes_back_is_new_and_asked_once() -> None:
    """Also while the answer to its old question is still on its way."""
    agenda = Agenda()
    agenda.want(of_one("a"))
    assert taken(agenda, 100) == ["a"]
    agenda.want({})
    agenda.want(of_one("a"))
    agenda.want({})
    agenda.want(of_one("a"))
    agenda.asked("a", due=101)
    assert taken(agenda, 102) == ["a"]
    assert taken(agenda, 200) == []


def test_another_configuration_makes_all_due() -> None:
    """As fast as the allowance lets them."""
    agenda = Agenda()
    agenda.want(of_one("a", "b"))
    for name in taken(agenda, 100):
        agenda.asked(name, due=3600)
    agenda.hasten(101)
    assert taken(agenda, 101) == ["a", "b"]


@given(
    st.lists(st.tuples(st.sampled_from(["want", "take", "asked", "hasten"]), st.sets(st.sampled_from("abc"))))
)
def test_no_name_is_lost_or_asked_twice_at_once(steps: Iterable[tuple[str, set[str]]]) -> None:
    """However it comes and goes, each wanted name is being asked or waits for its turn."""
    agenda, wanted, asking, now = Agenda(), set[str](), set[str](), 0.0
    for step, chosen in steps:
        now += 1
        if step == "want":
            wanted = chosen
            agenda.want(of_one(*chosen))
        elif step == "take":
            asking.update(taken(agenda, now))
        elif step == "hasten":
            agenda.hasten(now)
        else:
            for name in chosen & asking:
                asking.discard(name)
                agenda.asked(name, due=now + 1)
    for name in list(asking):
        agenda.asked(name, due=now)
    last = taken(agenda, now + 10)
    assert sorted(last) == sorted(wanted)


@pytest.mark.parametrize(
    ("reply", "failures", "seconds"),
    [
        (DnsReply(DnsOutcome.ADDRESSES, ttl=0), 0, LEAST),
        (DnsReply(DnsOutcome.ADDRESSES, ttl=120), 0, 120),
        (DnsReply(DnsOutcome.ADDRESSES, ttl=86400), 0, 3600),
        (DnsReply(DnsOutcome.NXDOMAIN, ttl=5), 0, LEAST),
        (DnsReply(DnsOutcome.NXDOMAIN, ttl=86400), 0, 300),
        (DnsReply(DnsOutcome.NO_ADDRESS, ttl=86400), 0, 300),
        (DnsReply(DnsOutcome.SERVFAIL), 1, 2),
        (DnsReply(DnsOutcome.TIMEOUT), 3, 8),
        (DnsReply(DnsOutcome.NO_SERVER), 1000, 60),
    ],
)
def test_a_name_is_asked_again_after_its_ttl_within_bounds(
    reply: DnsReply, failures: int, seconds: float
) -> None:
    """With a tenth of jitter; after failures ever later."""
    pauses = [pause_after(reply, failures, LEAST) for _ in range(50)]
    assert 0.9 * seconds <= min(pauses) < max(pauses) <= 1.1 * seconds
