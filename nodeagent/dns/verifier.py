"""Repeatedly looks up the hostnames that need verification, in threads of its own: no pass waits for DNS.

A changed answer counts at once. While a namespace's answers keep changing, they count ever more rarely, all
of them together: each such change makes every node write its hosts file, or CoreDNS reload.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from nodeagent.backoff import SubjectBackoff
from nodeagent.config.options import HostsOptions
from nodeagent.dns.lookup_queue import AGAIN_PER_SECOND, LONGEST_SECONDS, LookupQueue, pause_after
from nodeagent.model.addresses import IPAddress, sort_key
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsQuestion, DnsReply
from nodeagent.plan.memory import changed_keys
from nodeagent.typed_values import intern

if TYPE_CHECKING:
    from nodeagent.dns.lookup import Resolver

Ask = Callable[[str], DnsReply]
"""Looks up one hostname; may take seconds, and raises nothing for DNS failures."""

_LOG = logging.getLogger("nodeagent")

SPREAD_SECONDS: Final = 1.0
"""For agents: all of them learn of a new hostname at the same moment."""
_ONCE_SECONDS: Final = 10.0
_AT_ONCE: Final = 16
_TELL_SECONDS: Final = 0.5
_MOST_REMEMBERED: Final = 1024
"""Addresses of a load balancer's own hostname. If there are more, only the latest answer counts."""
_LONGEST_STEADY_SECONDS = 60.0
"""For so long at most after changes of its answers counted, a namespace's next ones don't count yet."""
_DOUBT_SECONDS, _LONGEST_DOUBT_SECONDS = 0.5, 60.0
"""After which a hostname that seems to have moved is asked again; while load balancers' own are awaited."""
_OTHERS: Final = 4
"""Addresses of an answer that are kept though they can't change a decision: to be shown."""
_SUSPECT_SECONDS: Final = 60.0
"""During this time, further changes next to a hostname don't bring forward the others again."""


@dataclass(slots=True)
class _Known:
    """What is known of one hostname, by monotonic seconds.

    `counts` is the answer that decisions rest on: `answer`, or an earlier one until its namespace may change.
    An answer, or the question, last changed something at `changed_at`. `seen` are the addresses of a load
    balancer's own hostname, each with the time of the last answer that had it.
    """

    answer: DnsAnswer
    counts: DnsAnswer
    changed_at: float
    failing_since: float | None = None
    seen: Mapping[IPAddress, float] = field(default_factory=dict)

    def remember(self, reply: DnsReply, now: float) -> DnsReply:
        """Add a load balancer's addresses of the last hour to a reply.

        Its servers may rotate more of them than one answer holds, and others are asked up to so much later.
        """
        lately = {address: at for address, at in self.seen.items() if now - at < LONGEST_SECONDS}
        before = lately if len(lately) <= _MOST_REMEMBERED else {}
        self.seen = {**before, **dict.fromkeys(reply.addresses, now)}
        outcome = DnsOutcome.ADDRESSES if self.seen else reply.outcome
        return replace(reply, outcome=outcome, addresses=tuple(sorted(self.seen, key=sort_key)))


class Hostnames:
    """The wanted hostnames: when each is looked up, and what is `known` of it. Not for several threads.

    `news` says whether the meaning of an answer has changed since the reader last cleared it.
    """

    def __init__(self, recheck_seconds: float, spread_seconds: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.queue = LookupQueue(spread_seconds, _AT_ONCE)
        self.known: dict[str, _Known] = {}
        self.news = False
        self.recheck_seconds = recheck_seconds
        self.wanted: Mapping[str, DnsQuestion] = {}
        # When the latest lookup of each load balancer's own hostname began: others are compared with these.
        self._own: dict[str, float] = {}
        # Since when a hostname's answers are not believed, which say something else than before.
        self._doubted: dict[str, float] = {}
        # When the lookups of these were brought forward: no more than AGAIN_PER_SECOND.
        self._hastened_at = -math.inf
        self._answers: Mapping[str, DnsAnswer] | None = None
        # By namespace, the hostnames whose changed answers don't count yet.
        self._changed: dict[str, set[str]] = {}
        self._steady: SubjectBackoff[str] = SubjectBackoff(
            clock, limit=1, longest=_LONGEST_STEADY_SECONDS, forget=2 * _LONGEST_STEADY_SECONDS
        )
        self._suspected: dict[str, float] = {}

    def want(self, wanted: Mapping[str, DnsQuestion]) -> None:
        """Take over what is wanted, and forget what is known of other hostnames."""
        before, self.wanted, now = self.wanted, wanted, self._clock()
        differing = changed_keys(before, wanted)
        changed = differing & before.keys() & wanted.keys()
        own = {*self._own} - differing | {name for name in differing & wanted.keys() if wanted[name].every}
        self._own = {name: self._own.get(name, math.inf) for name in own}
        if differing - changed:
            self.queue.want({name: question.namespace for name, question in wanted.items()}, now)
            for name in self.known.keys() - wanted.keys():
                del self.known[name]
                self._doubted.pop(name, None)
                self._answers = None
            self._suspected.clear()
        self.queue.hasten(changed, now)
        for name in self.known.keys() & changed:
            self.known[name].changed_at = now

    def answers(self) -> Mapping[str, DnsAnswer]:
        """Return the answers that count; the same object until one changes."""
        if self._answers is None:
            self._answers = {name: known.counts for name, known in self.known.items()}
        return self._answers

    def note(self, name: str, reply: DnsReply, began: float) -> None:
        """Take over the reply to a lookup that began then."""
        question, now, first = self.wanted.get(name), self._clock(), name not in self.known
        if question is None:
            self.queue.asked(name, now)
            return
        known = self.known.setdefault(name, _Known(DnsAnswer(reply), DnsAnswer(reply), now))
        if not question.every:
            reply = _without_others(reply, question)
        else:
            before, self._own[name] = min(self._own.values()), began
            after = min(self._own.values())
            self.queue.hasten({one for one, since in self._doubted.items() if before <= since < after}, now)
            reply = known.remember(reply, now) if reply.outcome.tells else reply
        told, meaning = known.answer.last_conclusive, _meaning(reply, question)
        moved = told and reply.outcome.tells and meaning != _meaning(told, question)
        if moved and not question.every and (pause := self._doubt(name, now)):
            self.queue.asked(name, now + pause)
            return
        same = not first and meaning == _meaning(known.answer.latest, question)
        pending = known.counts != known.answer
        known.answer = DnsAnswer(reply, reply if reply.outcome.tells else told)
        known.failing_since = None if reply.outcome.tells else known.failing_since or now
        self._doubted.pop(name, None)
        if moved:
            known.changed_at = now
            self._suspect_others(name, now)
        # Other hostnames are compared with a load balancer's own: what that has been seen at counts at once.
        if first or question.every or (same and not pending):
            if first or known.counts != known.answer:
                self._answers = None
            known.counts = known.answer
            self.news = self.news or not same
        else:
            self._changed.setdefault(question.namespace, set()).add(name)
        failing = now - known.failing_since if known.failing_since else 0.0
        # A load balancer's own hostname is asked as often as its TTL says: all others are compared with it.
        unchanged, names = (0.0, 1) if question.every else (now - known.changed_at, self.queue.sharing(name))
        self.queue.asked(name, now + pause_after(reply, self.recheck_seconds, unchanged, failing, names))

    def count_changes(self) -> float:
        """Have the changes of those namespaces count whose time has come; return when the next ones do."""
        waiting = self._steady.waiting()
        for namespace in self._changed.keys() - waiting.keys():
            for name in (changed := self.known.keys() & self._changed.pop(namespace)):
                self.known[name].counts = self.known[name].answer
            if changed:
                self._steady.wrote(namespace)
                self._answers, self.news = None, True
        return min((waiting[namespace] for namespace in self._changed), default=math.inf)

    def _doubt(self, name: str, now: float) -> float:
        """Return how long not to believe that a hostname has moved; 0 if it has.

        A second answer must say so, after load balancers' own hostnames were looked up as well: they may have
        moved together. Their answers end the wait, however slow their servers are.
        """
        since = self._doubted.setdefault(name, now)
        if self._own and since == now:
            return _DOUBT_SECONDS
        if min(self._own.values(), default=math.inf) > since:
            return 0.0
        if self._hastened_at <= since:
            pause = self._hastened_at + len(self._own) / AGAIN_PER_SECOND - now
            if pause > 0:
                return pause
            self._hastened_at = now
            self.queue.hasten(self._own, now)
        return _LONGEST_DOUBT_SECONDS

    def _suspect_others(self, name: str, now: float) -> None:
        """Bring forward the lookups of names next to a changed one in DNS: they have probably moved, too."""
        domain = name.partition(".")[2]
        if now < self._suspected.get(domain, -math.inf) + _SUSPECT_SECONDS:
            return
        self._suspected[domain] = now
        siblings = {other for other in self.known if other != name and other.partition(".")[2] == domain}
        self.queue.hasten(siblings, now, within=len(siblings) / AGAIN_PER_SECOND)


def _without_others(reply: DnsReply, question: DnsQuestion) -> DnsReply:
    """Return the reply with few of the addresses that can't change a decision: it is kept in memory."""
    others = [address for address in reply.addresses if address not in question.addresses]
    left_out = frozenset(others[_OTHERS:])
    kept = tuple(address for address in reply.addresses if address not in left_out)
    return replace(reply, addresses=intern(kept), more=len(left_out))


def _meaning(reply: DnsReply, question: DnsQuestion) -> tuple[object, ...]:
    """Return what of a reply can change a decision: servers that rotate their addresses change nothing."""
    addresses = frozenset(reply.addresses)
    relevant = addresses if question.every else addresses & question.addresses
    return reply.outcome, relevant, reply.unanswered


class DnsVerifier:
    """Has the answers of DNS for the wanted hostnames. Every method may be called from any thread.

    Args:
        ask: Looks up one hostname.
        recheck_seconds: No hostname is looked up again sooner, however short its TTL.
        on_change: Called when the meaning of an answer changed, at most twice a second. It must not wait.
        on_reply: Called with the outcome of each lookup. It must not wait.
        spread_seconds: One that is new, or whose question changed, waits up to this long, at random.
    """

    def __init__(
        self,
        ask: Ask,
        recheck_seconds: float,
        *,
        on_change: Callable[[], None] = lambda: None,
        on_reply: Callable[[DnsOutcome], None] = lambda _: None,
        spread_seconds: float = 0.0,
    ) -> None:
        self._ask = ask
        self._on_change = on_change
        self._on_reply = on_reply
        self._hostnames = Hostnames(recheck_seconds, spread_seconds, time.monotonic)
        # One thread watches the clock and starts another one for each lookup.
        self._watching = self._ended = False
        self._changed = threading.Condition()

    def want(self, wanted: Mapping[str, DnsQuestion]) -> None:
        """From now on, look up these hostnames and no others; answers for others are forgotten.

        A hostname is looked up again at once if its question changed, as with its load balancer's addresses.
        """
        with self._changed:
            if wanted is self._hostnames.wanted:
                return
            if wanted and not self._watching and not self._ended:
                threading.Thread(target=self._watch, name="dns", daemon=True).start()
                self._watching = True
            self._hostnames.want(wanted)
            self._changed.notify_all()

    def answers(self) -> Mapping[str, DnsAnswer]:
        """Return what is known now of hostnames that were looked up; the same object until that changes."""
        with self._changed:
            return self._hostnames.answers()

    def failing_since(self) -> dict[str, float]:
        """Return the hostnames whose lookups fail now, each with the monotonic seconds since when."""
        with self._changed:
            known = self._hostnames.known.items()
            return {name: each.failing_since for name, each in known if each.failing_since is not None}

    def await_answers(self, seconds: float) -> None:
        """Return when every wanted hostname was looked up, or after `seconds`."""
        with self._changed:
            names = self._hostnames
            self._changed.wait_for(lambda: len(names.known) == len(names.wanted), seconds)

    def ask_by(self, ask: Ask, recheck_seconds: float) -> None:
        """Look up in this way from now on, and every hostname soon: the configuration changed."""
        with self._changed:
            self._ask, self._hostnames.recheck_seconds = ask, recheck_seconds
            self._hostnames.queue.hasten(self._hostnames.wanted, time.monotonic())
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop looking up. A thread that waits for an answer does not keep the process alive."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _watch(self) -> None:
        """Start the lookups that are due, and report changes, until the end."""
        names, may_tell = self._hostnames, -math.inf
        with self._changed:
            while not self._ended:
                now = time.monotonic()
                next_at = names.count_changes()
                if names.news and now >= may_tell:
                    names.news, may_tell = False, now + _TELL_SECONDS
                    self._on_change()
                name = names.queue.take(now)
                if name is None:
                    next_at = min(next_at, may_tell if names.news else math.inf)
                    pause = min(names.queue.pause(now), next_at - now)
                    self._changed.wait(None if pause == math.inf else pause)
                    continue
                lookup = partial(self._look_up, name, self._ask, now)
                try:
                    threading.Thread(target=lookup, name="dns", daemon=True).start()
                except RuntimeError as error:  # A limit of processes is reached, perhaps for a moment.
                    names.note(name, DnsReply(DnsOutcome.UNREACHABLE, trouble=f"{error}"), now)
                    self._changed.notify_all()

    def _look_up(self, name: str, ask: Ask, began: float) -> None:
        try:
            reply = ask(name)
        except Exception as error:  # noqa: BLE001 - see below
            # A bug in nodeagent, triggered by some odd answer: this one is tried again, the others go on.
            _LOG.exception("Could not look up a hostname", extra={"fields": {"name": name}})
            reply = DnsReply(DnsOutcome.UNREACHABLE, trouble=f"an error in nodeagent: {error}")
        self._on_reply(reply.outcome)
        with self._changed:
            self._hostnames.note(name, reply, began)
            self._changed.notify_all()


def ask_upstream(options: HostsOptions) -> Ask:
    """Return the function that looks up one hostname; it determines the servers for each."""

    @cache
    def resolver() -> "Resolver":
        # Without lookups, dnspython costs neither time to import nor memory.
        from nodeagent.dns.lookup import Resolver, find_upstreams  # noqa: PLC0415

        return Resolver(partial(find_upstreams, options))

    return lambda name: resolver().ask(name)


def ask_once(wanted: Mapping[str, DnsQuestion], options: HostsOptions) -> Mapping[str, DnsAnswer]:
    """Look up all of the hostnames, for ten seconds at most; those left over are not in the answer."""
    verifier = DnsVerifier(ask_upstream(options), options.dns_recheck_seconds)
    try:
        verifier.want(wanted)
        verifier.await_answers(_ONCE_SECONDS)
        return verifier.answers()
    finally:
        verifier.stop()
