"""When each hostname is looked up. The tests set the time, none passes."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from itertools import chain, islice
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.dns import hostnames
from nodeagent.dns.hostnames import Hostnames, pause_after
from nodeagent.model.facts import DnsOutcome, DnsQuestion, DnsReply
from tests.cases import cases_of

LEAST = 30.0


class Lookups:
    """Hostnames, whose lookups all have the same reply, at times that the test sets."""

    def __init__(self, spread_seconds: float = 0.0, at_once: float = math.inf) -> None:
        self.now = 0.0
        self.hostnames = Hostnames(LEAST, spread_seconds, at_once, lambda: self.now)

    def want(self, names: Mapping[str, str], now: float = 0.0) -> None:
        """Want these, each with the namespace that claims it."""
        self.now = now
        self.hostnames.want({name: DnsQuestion(frozenset(), names[name]) for name in names})

    def take(self, now: float) -> str | float:
        self.now = now
        return self.hostnames.take()

    def taken(self, now: float) -> list[str]:
        """Return all that are due."""
        return [*iter_names(self, now)]

    def pause(self, now: float) -> float:
        pause = self.take(now)
        assert isinstance(pause, float)
        return pause

    def asked(self, name: str, due: float) -> None:
        """Answer a lookup; it is due again then."""
        with patch.object(hostnames, "pause_after", return_value=float(due - self.now)):
            self.hostnames.note(name, DnsReply(DnsOutcome.NXDOMAIN))


def iter_names(lookups: Lookups, now: float) -> Iterator[str]:
    while isinstance(name := lookups.take(now), str):
        yield name


def names(count: int) -> list[str]:
    return [f"n{number:05}.example.com" for number in range(count)]


def of_one(*found: str) -> dict[str, str]:
    return dict.fromkeys(found, "team")


def test_namespaces_take_turns() -> None:
    """Thousands of names of one namespace don't keep another's single name waiting, new or not."""
    lookups = Lookups()
    lookups.want(of_one(*names(2000)) | {"victim.example.net": "victim"})
    assert "victim.example.net" in [lookups.take(100) for _ in range(2)]
    for name in iter_names(lookups, 100):
        lookups.asked(name, due=101)
    lookups.asked("victim.example.net", due=130)
    lookups.want(dict.fromkeys(names(50), "team") | {"victim.example.net": "victim"})
    asked = [lookups.take(130 + tick / 5) for tick in range(6)]
    assert "victim.example.net" in asked


def test_a_namespace_leaves_as_many_lookups_free_as_it_has() -> None:
    """Of 16, two namespaces have 11; the rest is for others. What ends makes room, wanted or not.

    A tenant's own DNS server may take all of the seconds that a lookup may last, for each of thousands.
    """
    lookups = Lookups(at_once=16)
    lookups.want(of_one(*names(20)) | {f"{each}.example.net": "next" for each in "abcdef"})
    first = lookups.taken(100)
    assert Counter(name.endswith(".net") for name in first) == {True: 6, False: 5}
    assert lookups.pause(100) == math.inf
    lookups.want(dict.fromkeys(names(20), "team") | {"other.example.org": "other"}, 100)
    assert lookups.taken(101) == ["other.example.org"]
    for name in first:
        lookups.asked(name, due=500)
    assert len(lookups.taken(101)) == 8
    assert lookups.pause(101) == 399  # until the next one is due; what ends sooner makes room


def test_thousands_of_names_of_a_namespace_do_not_delay_others_next_lookups() -> None:
    lookups = Lookups()
    lookups.want(of_one(*names(5000)) | {"victim.example.net": "victim"})
    share = {}
    for name in ("victim.example.net", names(1)[0]):
        with patch.object(hostnames, "pause_after", return_value=1.0) as pause:
            lookups.hostnames.note(name, DnsReply(DnsOutcome.NXDOMAIN))
        share[name] = pause.call_args.args[-1]
    assert [*share.values()] == [2, 5001]


def test_a_new_name_is_asked_at_once_and_again_when_it_is_due() -> None:
    lookups = Lookups()
    lookups.want(of_one("a"))
    assert lookups.taken(100) == ["a"]
    assert lookups.pause(100) == math.inf
    lookups.asked("a", due=130)
    assert (lookups.pause(100), lookups.taken(129.9), lookups.taken(130)) == (30, [], ["a"])


@pytest.mark.parametrize(("count", "seconds"), [(1000, 10), (10_000, 60)])
def test_new_names_are_asked_within_seconds(count: int, seconds: int) -> None:
    lookups = Lookups()
    lookups.want(of_one(*names(count)))
    asked = [lookups.taken(100 + tick / 10) for tick in range(seconds * 10)]
    assert list(chain.from_iterable(asked)) == names(count)
    assert len(asked[0]) <= 201, "as many as a second has, after a rest"
    assert max(sum(len(asked[tick + more]) for more in range(10)) for tick in range(10, 90)) <= 200


def test_nodes_do_not_ask_together_for_what_all_of_them_hear_of() -> None:
    """5,000 nodes and one new name: spread over a second, which is within the two that it may take."""
    due = []
    for _ in range(5000):
        lookups = Lookups(spread_seconds=1.0)
        lookups.want({"new": "team"}, 100.0)
        due.append(100 + lookups.pause(100.0))
    assert 100 <= min(due) < 100.01
    assert 100.99 < max(due) <= 101
    assert max(sum(at <= each < at + 0.1 for each in due) for at in (100, 100.3, 100.9)) < 700


def test_a_name_that_changes_while_it_is_asked_is_asked_again() -> None:
    lookups = Lookups()
    lookups.want(of_one("a"))
    assert lookups.taken(100) == ["a"]
    lookups.hostnames.ask_again(["a", "unknown"])
    assert lookups.taken(100) == []
    lookups.asked("a", 700)
    assert lookups.taken(100.1) == ["a"]
    lookups.asked("a", 700)
    assert lookups.taken(600) == []


def test_hastened_names_are_asked_within_the_time_that_is_given() -> None:
    """Spread over it; those that are due sooner stay."""
    lookups = Lookups(spread_seconds=40)
    lookups.want(of_one(*names(200)))
    for name in lookups.taken(100):
        lookups.asked(name, due=101 if name == "n00000.example.com" else 500)
    lookups.hostnames.ask_again(names(200))
    assert "n00000.example.com" in lookups.taken(101)
    assert 50 < len(lookups.taken(120)) < 150
    lookups.taken(140)
    assert lookups.taken(600) == []


def test_one_whose_address_seems_to_be_gone_is_looked_up_again_before_that_counts() -> None:
    """Thousands share the lookups: the next one would come after hours, and a single wrong answer count."""
    lookups, question = Lookups(), DnsQuestion(frozenset({ip_address("192.0.2.1")}), "team")
    lookups.hostnames.want(dict.fromkeys(names(10_000), question))
    name, pauses = names(1)[0], []
    for reply in (DnsReply(DnsOutcome.ADDRESSES, tuple(question.addresses)), DnsReply(DnsOutcome.NXDOMAIN)):
        with patch.object(hostnames, "pause_after", return_value=1.0) as pause:
            lookups.hostnames.note(name, reply)
        pauses.append(pause.call_args.args[-1])
    assert pauses == [10_000, 1]


def test_changes_of_objects_do_not_begin_the_turns_again() -> None:
    """All of a hundred namespaces have theirs, while one has a new hostname again and again."""
    lookups, asked = Lookups(), list[str]()
    many = {name: f"team{number // 10:02}" for number, name in enumerate(names(1000))}
    for second in range(20):
        lookups.want({**many, f"new{second}": "team00"}, second)
        asked += [f"{lookups.take(second)}" for _ in range(5)]
    assert {many.get(name, "team00") for name in asked} == {*many.values()}


_A, _NONE = {"a"}, set[str]()


@given(
    st.lists(st.tuples(st.sampled_from(["want", "take", "asked", "hasten"]), st.sets(st.sampled_from("abc"))))
)
# No longer wanted while it is asked; and back, before its old question is answered.
@example([("want", {*"abc"}), ("take", _NONE), ("asked", _A), ("want", _NONE), ("asked", {*"bc"})])
@example([("want", _A), ("take", _NONE), *[("want", _NONE), ("want", _A)] * 2, ("asked", _A)])
@example([("want", _A), ("take", _NONE), ("want", _NONE), ("want", _A), ("take", _NONE)])
# Another namespace claims it while it waits for its turn.
@example([("want", {*"ab"}), ("take", _A), ("hasten", _NONE), ("want", {*"ab"}), ("take", _NONE)])
def test_no_name_is_lost_or_asked_twice_at_once(steps: Iterable[tuple[str, set[str]]]) -> None:
    """However hostnames are added and removed, each wanted name is being asked or waits for its turn."""
    lookups, wanted, asking, now = Lookups(), set[str](), set[str](), 0.0
    for step, chosen in steps:
        now += 1
        if step == "want":
            wanted = chosen
            lookups.want(dict.fromkeys(chosen, f"team{now % 2}"))
        elif step == "take":
            found = [*islice(iter_names(lookups, now), len(chosen) or None)]
            assert len({*found}) == len(found)
            assert not asking.intersection(found)
            asking.update(found)
        elif step == "hasten":
            lookups.hostnames.ask_again(chosen)
        else:
            for name in chosen & asking:
                asking.discard(name)
                lookups.asked(name, due=now + 1)
    for name in list(asking):
        lookups.asked(name, due=now)
    last = lookups.taken(now + 10)
    assert sorted(last) == sorted(wanted)


@pytest.mark.parametrize(
    ("outcome", "unchanged", "failing", "seconds"), cases_of(__file__, "cases.yaml")["pauses"]
)
def test_a_name_is_asked_again_after_as_long_as_nothing_has_changed(
    outcome: str, unchanged: float, failing: float, seconds: float
) -> None:
    """An hour at the latest, with a fifth of jitter; in the first hour of failures, a minute."""
    reply = DnsReply(DnsOutcome[outcome])
    pauses = [pause_after(reply, LEAST, unchanged, failing) for _ in range(50)]
    assert 0.8 * seconds <= min(pauses) < max(pauses) <= seconds


@pytest.mark.parametrize("outcome", ["TIMEOUT", "SERVFAIL", "ADDRESSES", "NXDOMAIN"])
def test_a_name_whose_answers_change_nothing_is_asked_ever_more_rarely_whatever_they_are(
    outcome: str,
) -> None:
    """After an hour, once an hour: thousands were asked five a second without an end."""
    reply, now, asked = DnsReply(DnsOutcome[outcome]), 0.0, []
    while now < 2 * 86400:
        now += pause_after(reply, LEAST, unchanged=now, failing=0.0 if reply.outcome.tells else now)
        asked.append(now)
    assert sum(at <= 3600 for at in asked) >= 6
    assert sum(at > 86400 for at in asked) <= 30
    assert asked[-1] - asked[-2] >= 0.8 * 3600


def test_no_name_is_asked_sooner_than_configured() -> None:
    reply = DnsReply(DnsOutcome.ADDRESSES)
    assert min(pause_after(reply, 3600, unchanged, 0.0) for unchanged in range(0, 7200, 60)) >= 3600


def test_many_names_share_five_lookups_a_second_and_the_first_come_early() -> None:
    """Of them, 10,000 are asked again within 4,000 s; a failure of all is over as soon."""
    for reply in (DnsReply(DnsOutcome.ADDRESSES), DnsReply(DnsOutcome.TIMEOUT)):
        pauses = [pause_after(reply, LEAST, 0.0, 0.0, names=10_000) for _ in range(10_000)]
        assert 1900 < sum(pauses) / len(pauses) < 2100
        assert max(pauses) <= 4000
        assert sum(pause < 60 for pause in pauses) > 50
