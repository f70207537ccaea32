"""What the verifier knows, whom it notifies, and how it ends. It asks a function that the test gives."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address
from itertools import cycle
from typing import Any
from unittest.mock import Mock

import pytest

from nodeagent.dns.hostnames import Hostnames
from nodeagent.dns.verifier import DnsVerifier
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsQuestion, DnsReply
from nodeagent.model.objects import ObjectRef
from tests.cases import cases_of
from tests.testbed.waiting import wait_until

OWN = ip_address("192.0.2.1")
OTHER = ip_address("198.51.100.4")
MATTERS = DnsQuestion(frozenset({OWN}), "team")
LB = DnsQuestion(frozenset(), "team", every=True)
NOTHING = DnsReply(DnsOutcome.NXDOMAIN)
AWAY = DnsReply(DnsOutcome.TIMEOUT, trouble="no answer in time")


def told(*addresses: str) -> DnsReply:
    return DnsReply(DnsOutcome.ADDRESSES, tuple(map(ip_address, addresses)))


class MadeUpDns:
    """Answers what the test says, counts the questions, and how often its verifier reported a change."""

    def __init__(self, **replies: DnsReply) -> None:
        self.replies = replies
        self.asked: Counter[str] = Counter()
        self.outcomes: Counter[DnsOutcome] = Counter()
        self.changes = 0

    def ask(self, name: str) -> DnsReply:
        self.asked[name] += 1
        return self.replies[name]

    def changed(self) -> None:
        self.changes += 1

    @contextmanager
    def prover(self, *names: str, recheck_seconds: float = 300) -> Iterator[DnsVerifier]:
        """A prover that asks here, with hardly a pause, and knows the answers for these names."""

        def count(outcome: DnsOutcome) -> None:
            self.outcomes[outcome] += 1

        made = DnsVerifier(self.ask, recheck_seconds, on_change=self.changed, on_reply=count)
        try:
            made.want(dict.fromkeys(names, MATTERS))
            made.await_answers(60)
            yield made
        finally:
            made.stop()
            wait_until(
                lambda: not any(one.name == "dns" for one in threading.enumerate()), "its threads' end"
            )


class Noted:
    """Hostnames whose lookups the test answers, at times that it chooses."""

    def __init__(self, **wanted: DnsQuestion) -> None:
        self.now = 0.0
        self.hostnames = Hostnames(5.0, spread_seconds=0.0, at_once=16, clock=lambda: self.now)
        self.hostnames.want(wanted)

    def note(self, name: str, reply: DnsReply, now: float) -> None:
        """Answer a lookup, which takes no time."""
        self.now = now
        self.hostnames.note(name, reply)
        self.hostnames.count_changes()

    def next_change(self, now: float) -> float:
        """Let time pass; return when changes count next."""
        self.now = now
        return self.hostnames.count_changes()

    def due(self, now: float) -> set[str]:
        self.now = now
        return {*iter_names(self.hostnames)}

    def known(self, name: str) -> tuple[str, ...]:
        return tuple(map(str, self.hostnames.answers()[name].latest.addresses))


def iter_names(hostnames: Hostnames) -> Iterator[str]:
    while isinstance(name := hostnames.take(), str):
        yield name


_SEQUENCES: dict[str, dict[str, Any]] = cases_of(__file__, "sequences.yaml")
_MOVED = DnsQuestion(frozenset({OTHER}), "team")
_QUESTIONS = {"matters": MATTERS, "own": LB, "moved": _MOVED}
_QUESTIONS["two"] = replace(MATTERS, addresses=frozenset({OWN, OTHER}))
_QUESTIONS["claimed"] = replace(_MOVED, claimed_by=ObjectRef("Ingress", "team", "newer"))


@pytest.mark.parametrize("case", _SEQUENCES)
def test_what_is_known_and_asked(case: str) -> None:
    noted = Noted(**{name: _QUESTIONS[asked] for name, asked in _SEQUENCES[case]["wanted"].items()})
    for step in _SEQUENCES[case]["steps"]:
        now, noted.hostnames.news = step["at"], False
        assert "due" not in step or noted.due(now) == {*step["due"]}
        for name, said in step.get("answers", {}).items():
            noted.note(name, _reply(said), now)
        noted.next_change(now)
        if "want" in step:
            noted.hostnames.want({name: replace(_QUESTIONS[asked]) for name, asked in step["want"].items()})
        answers = noted.hostnames.answers()
        assert {name: [*noted.known(name)] for name in step.get("known", ())} == step.get("known", {})
        assert answers.keys().isdisjoint(step.get("unknown", ()))
        assert step.get("news") in {None, noted.hostnames.news}
        for name, said in step.get("conclusive", {}).items():
            assert answers[name].last_conclusive == _reply(said)


def _reply(said: str | list[str]) -> DnsReply:
    return DnsReply(DnsOutcome(said)) if isinstance(said, str) else told(*said)


def test_answers_are_known_once_they_are_there() -> None:
    dns = MadeUpDns(a=told("192.0.2.1"), b=DnsReply(DnsOutcome.NXDOMAIN))
    with dns.prover() as prover:
        assert prover.answers() == {}
        prover.want({"a": MATTERS, "b": MATTERS})
        prover.await_answers(600)  # longer than a test may take
        assert prover.answers() == {name: DnsAnswer(reply, reply) for name, reply in dns.replies.items()}
        wait_until(lambda: dns.changes > 0, "being told")
    assert dns.asked == {"a": 1, "b": 1}
    assert dns.outcomes == {DnsOutcome.ADDRESSES: 1, DnsOutcome.NXDOMAIN: 1}


def test_of_many_addresses_those_that_matter_are_kept_and_four_others() -> None:
    """5,000 hostnames with hundreds of addresses each took 263 MiB of every agent."""
    many = [f"198.51.100.{number}" for number in range(1, 200)]
    noted = Noted(a=MATTERS)
    noted.note("a", told("192.0.2.1", *many), 0)
    assert noted.known("a") == ("192.0.2.1", *many[:4])
    assert noted.hostnames.answers()["a"].latest.more == 195


def test_answers_that_keep_changing_count_together_and_rarely() -> None:
    """Of a hundred hostnames at a server that alternates; another's that has moved counts with them.

    A thousand were dozens of writes of the hosts file per minute, for ever.
    """
    names = [f"n{number:03}" for number in range(100)]
    noted = Noted(**dict.fromkeys(names, MATTERS), other=replace(MATTERS, namespace="other"))
    for name in (*names, "other"):
        noted.note(name, told("192.0.2.1"), 0.0)
    noted.note("other", told("198.51.100.4"), 600)
    writes, flips, seen = 0, cycle(("192.0.2.1", "198.51.100.4")), noted.hostnames.answers()
    for second in range(600, 1200):
        for name in names[second % 20 :: 20]:
            noted.note(name, told(next(flips)), second)
        writes += noted.hostnames.answers() != seen
        seen = noted.hostnames.answers()
        assert second < 622 or noted.known("other") == ("198.51.100.4",)
    assert writes <= 60


def test_changes_count_each_minute_however_seldom_hostnames_are_verified() -> None:
    noted = Noted(a=MATTERS, b=MATTERS)
    noted.hostnames.recheck_seconds = 3600
    for now, reply in enumerate((NOTHING, told("192.0.2.1"))):
        noted.note("a", reply, now)
        noted.note("b", reply, now)
    assert (noted.known("a"), noted.known("b"), noted.next_change(2)) == (("192.0.2.1",), (), 61)


def test_the_last_answer_is_remembered_while_dns_is_unavailable() -> None:
    noted, before = Noted(a=MATTERS), told("192.0.2.1")
    for now, reply in enumerate((before, AWAY, AWAY), 1):
        noted.note("a", reply, 20 * now)
    assert noted.hostnames.answers() == {"a": DnsAnswer(AWAY, before, failing_since=40)}
    for now in (80, 100):
        noted.note("a", NOTHING, now)
    assert noted.hostnames.answers() == {"a": DnsAnswer(NOTHING, NOTHING)}


def test_another_way_to_ask_is_taken_over() -> None:
    old, new = MadeUpDns(a=told("192.0.2.1")), MadeUpDns(a=told("192.0.2.1", "198.51.100.4"))
    with old.prover("a") as prover:
        prover.ask_by(new.ask, 300)
        wait_until(lambda: prover.answers()["a"].latest == new.replies["a"], "the new server's answer")
    assert old.asked == new.asked == {"a": 1}


def test_a_bug_in_nodeagent_costs_one_hostname_one_attempt(caplog: pytest.LogCaptureFixture) -> None:
    dns = MadeUpDns(a=told("192.0.2.1"))
    with dns.prover("a", "odd") as prover:
        answers = prover.answers()
    assert answers["a"].latest == dns.replies["a"]
    assert (answers["odd"].latest.outcome, answers["odd"].last_conclusive) == (DnsOutcome.UNREACHABLE, None)
    assert "KeyError" in caplog.text


def test_it_ends_though_a_server_is_silent() -> None:
    """Waiting threads end at once; those that ask, for one namespace half of them, do not delay the end."""
    asked: list[str] = []
    go_on = threading.Event()

    def ask(name: str) -> DnsReply:
        asked.append(name)
        go_on.wait(30)
        return AWAY

    prover = DnsVerifier(ask, 1)
    prover.want({f"{number}.example.com": MATTERS for number in range(20)})
    wait_until(lambda: len(asked) == 8, "their lookups")
    prover.stop()
    assert len(asked) == 8
    assert all(one.daemon for one in threading.enumerate() if one.name == "dns")
    prover.await_answers(0)
    assert prover.answers() == {}
    go_on.set()
    wait_until(lambda: not any(one.name == "dns" for one in threading.enumerate()), "its thread's end")


def test_what_a_load_balancers_hostname_answers_takes_no_memory() -> None:
    """Its server may answer with others each time: beyond a bound only the latest answer counts."""
    noted = Noted(lb=LB)
    for second in range(8):
        noted.note("lb", told(*(f"10.{second}.{number}.1" for number in range(256))), second)
        assert len(noted.known("lb")) <= 1024 + 256


def test_a_load_balancers_hostname_is_not_asked_ever_more_rarely() -> None:
    """Hostnames that moved are compared with it."""
    noted = Noted(lb=LB)
    for now in (0, 1000, 2000):
        assert noted.due(now) == {"lb"}
        noted.note("lb", told("192.0.2.1"), now)
        assert 5 <= float(noted.hostnames.take()) <= 6.25


def test_threads_that_can_not_be_started_are_started_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes may be reached for a while: a thread that never ran must not count."""
    dns = MadeUpDns(a=told("192.0.2.1"))
    with dns.prover() as prover:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
            for _ in range(20):
                with pytest.raises(RuntimeError):
                    prover.want({"a": MATTERS})
        prover.want({"a": MATTERS})
        prover.await_answers(60)
        assert prover.answers()["a"].latest == dns.replies["a"]
