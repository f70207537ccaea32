"""The hostnames that DNS is asked about: when each one is due, and what is known of it. Pure.

One heap has them by due time. Those that are due wait for their namespace's turn, and of the lookups that are
possible at once, a namespace has at most as many as it leaves free (the dynamic thresholds of Choudhury and
Hahne): neither thousands of hostnames nor slow servers delay others. Times are seconds that never go back.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from nodeagent.model.addresses import IPAddress, sort_key
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsQuestion, DnsReply
from nodeagent.plan.memory import changed_keys

_PER_SECOND: Final = 200.0
_AGAIN_PER_SECOND: Final = 5.0
"""Hostnames looked up again, on average, however many there are; twice as many if namespaces differ much."""
_FIRST_RETRY_SECONDS, _MINUTE, _HOUR = 2.0, 60.0, 3600.0
_SPREAD: Final = 0.2
_chance = partial(random.uniform, 0.0)
_MOST_REMEMBERED: Final = 1024
"""Addresses of a load balancer's own hostname. If there are more, only the latest answer counts."""


def pause_after(reply: DnsReply, least: float, unchanged: float, failing: float, names: int = 1) -> float:
    """Return the seconds until the next lookup, reduced by up to a fifth so that lookups don't coincide.

    At first `least`, then for as long again as nothing has changed, up to an hour. While lookups fail, from
    2 s up to a minute in the same way. If nothing has changed for an hour, an hour, whatever the answer. If
    many `names` share _AGAIN_PER_SECOND, longer, at random, so that the first are not looked up late.
    """
    if reply.outcome.tells or unchanged >= _HOUR:
        least /= 1 - _SPREAD
        pause = min(max(least, unchanged), max(least, _HOUR))
    else:
        pause = min(max(_FIRST_RETRY_SECONDS, failing), _MINUTE)
    return max(pause - _chance(pause * _SPREAD), _chance(2 * names / _AGAIN_PER_SECOND))


@dataclass(slots=True)
class _Hostname:
    """What is known of one hostname, by monotonic seconds.

    It is `due` then; never, while it is looked up. Decisions rest on the answer that `counts`: the latest
    `answer` to the question, or an earlier one until a change counts. The answer, or the question, last
    changed something at `changed_at`. An address of the one that counts is gone since `gone_since`. `seen`
    are a load balancer's own addresses, each with the time of the last answer that had it.
    """

    question: DnsQuestion
    due: float = math.inf
    answer: DnsAnswer | None = None
    counts: DnsAnswer | None = None
    changed_at: float = 0.0
    gone_since: float = math.inf
    seen: Mapping[IPAddress, float] = field(default_factory=dict)

    def answered(self, reply: DnsReply, now: float) -> DnsAnswer:
        """Return what is known with this reply, which may have failed."""
        before = self.answer or self.counts or DnsAnswer(reply)
        if not self.question.every:
            reply = self.question.without_others(reply)
        elif reply.outcome.tells:
            reply = self._remember(reply, now)
        if reply.outcome.tells:
            return DnsAnswer(reply, reply)
        return DnsAnswer(reply, before.last_conclusive, before.failing_since or now)

    def _remember(self, reply: DnsReply, now: float) -> DnsReply:
        """Add a load balancer's addresses of the last hour: servers may rotate more than one answer has."""
        lately = {address: at for address, at in self.seen.items() if now - at < _HOUR}
        before = lately if len(lately) <= _MOST_REMEMBERED else {}
        self.seen = {**before, **dict.fromkeys(reply.addresses, now)}
        outcome = DnsOutcome.ADDRESSES if self.seen else reply.outcome
        return replace(reply, outcome=outcome, addresses=tuple(sorted(self.seen, key=sort_key)))


class Hostnames:
    """The wanted hostnames: at most 200 lookups a second, `at_once` at a time. Not for several threads.

    One that is new or changed waits up to `spread_seconds`, at random: all nodes learn of it at once. `news`
    says whether the meaning of an answer has changed since the reader last cleared it.
    """

    def __init__(
        self, recheck_seconds: float, spread_seconds: float, at_once: float, clock: Callable[[], float]
    ) -> None:
        self.recheck_seconds = recheck_seconds
        self.wanted: Mapping[str, DnsQuestion] = {}
        self.known: dict[str, _Hostname] = {}
        self.news = False
        self._spread_seconds, self._at_once, self._clock = spread_seconds, at_once, clock
        # An entry of the heap counts if the hostname is still due then. By namespace: how many hostnames it
        # has, and those whose time has come. What is being looked up, for which namespace.
        self._heap: list[tuple[float, str]] = []
        self._numbers = Counter[str]()
        self._ready: dict[str, dict[str, None]] = {}
        self._asking: dict[str, str] = {}
        # From when on a changed answer may count; when the next lookup may begin, and the next changes count.
        self._changed: dict[str, float] = {}
        self._next_at = self._count_at = -math.inf
        self._answers: Mapping[str, DnsAnswer] | None = None

    def want(self, wanted: Mapping[str, DnsQuestion]) -> None:
        """Look up these from now on, new and changed ones soon; forget what is known of others."""
        before, self.wanted, now = self.wanted, wanted, self._clock()
        differing = changed_keys(before, wanted)
        for name in differing - wanted.keys():
            del self.known[name]
            self._answers = None
        for name in differing & wanted.keys():
            known = self.known.setdefault(name, _Hostname(wanted[name]))
            known.question, known.changed_at = wanted[name], now
        self.ask_again(differing)
        self._numbers = Counter(question.namespace for question in wanted.values())
        self._ready = {ns: {} for ns in self._ready if ns in self._numbers}  # Their turns stay.
        self._heap = [(known.due, name) for name, known in self.known.items()]
        heapq.heapify(self._heap)

    def ask_again(self, names: Iterable[str]) -> None:
        """Have these looked up soon: what was answered last was another question, or by other servers."""
        for name in names:
            self._changed.pop(name, None)
            if known := self.known.get(name):
                known.answer = None
                self._put(name, self._clock() + _chance(self._spread_seconds))

    def take(self) -> str | float:
        """Return the hostname to look up now (`note` must follow), or the seconds until there may be one."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            due, name = heapq.heappop(self._heap)
            if (known := self.known.get(name)) and known.due == due and name not in self._asking:
                self._ready.setdefault(known.question.namespace, {})[name] = None
        running, free = Counter(self._asking.values()), self._at_once - len(self._asking)
        namespace = next((ns for ns in self._ready if self._ready[ns] and running[ns] < free), None)
        if namespace is None:
            return self._heap[0][0] - now if self._heap else math.inf
        if self._next_at > now:
            return self._next_at - now
        waiting = self._ready.pop(namespace)
        name = next(iter(waiting))
        del waiting[name]
        if waiting:
            self._ready[namespace] = waiting  # It had its turn: the others come first.
        self._asking[name], self.known[name].due = namespace, math.inf
        # After a rest, as many as a second has are looked up at once.
        self._next_at = max(self._next_at, now - 1) + 1 / _PER_SECOND
        return name

    def note(self, name: str, reply: DnsReply) -> None:
        """Take over the reply to a lookup."""
        self._asking.pop(name, None)
        known, now = self.known.get(name), self._clock()
        if known is None:
            return
        question, counts, is_first = known.question, known.counts, known.answer is None
        answer = known.answer = known.answered(reply, now)
        after, before = answer.last_conclusive, counts.last_conclusive if counts else None
        changed = question.meaning(after) != question.meaning(before)
        same = counts and not changed and question.meaning(answer.latest) == question.meaning(counts.latest)
        gone = question.relevant(before) - question.relevant(after)
        known.gone_since = min(known.gone_since, now) if gone else math.inf
        if same or question.every or (is_first and not gone):
            if counts != answer:
                known.counts, self._answers = answer, None
            self._changed.pop(name, None)
            self.news = self.news or not same
        else:
            # That an address is gone counts later, if it is still so when this is looked up once more: the
            # load balancer may have moved as well, and its own hostname is looked up meanwhile.
            later = known.gone_since + 2 * self.recheck_seconds if reply.outcome.tells else math.inf
            self._changed[name] = later if gone else -math.inf
        if changed or question.every:  # Others are compared with a load balancer's own.
            known.changed_at = now
        # They share _AGAIN_PER_SECOND, as if no namespace had more of them than its own.
        share = min(self._numbers.total(), len(self._numbers) * self._numbers[question.namespace])
        names = 1 if question.every or known.gone_since == now else share
        unchanged, failing = now - known.changed_at, now - (answer.failing_since or now)
        self._put(name, now + pause_after(reply, self.recheck_seconds, unchanged, failing, names))

    def count_changes(self) -> float:
        """Have changed answers count; return when the next ones may.

        Then none does for up to a minute: each time, every node writes its hosts file, or CoreDNS reloads.
        """
        now, next_at = self._clock(), max(self._count_at, min(self._changed.values(), default=math.inf))
        if next_at > now:
            return next_at
        for name in [name for name, at in self._changed.items() if at <= now]:
            del self._changed[name]
            self.known[name].counts, self.known[name].gone_since = self.known[name].answer, math.inf
        self._count_at, self._answers, self.news = now + min(2 * self.recheck_seconds, _MINUTE), None, True
        return self.count_changes()

    def answers(self) -> Mapping[str, DnsAnswer]:
        """Return the answers that count; the same object until one changes."""
        if self._answers is None:
            self._answers = {name: known.counts for name, known in self.known.items() if known.counts}
        return self._answers

    def _put(self, name: str, due: float) -> None:
        self.known[name].due = due = min(due, self.known[name].due)
        heapq.heappush(self._heap, (due, name))
