"""When each hostname is looked up: the namespaces take turns, and stable ones come ever less often. Pure.

Thousands of hostnames of one namespace don't delay those of others. Nor do hostnames whose servers take their
time: of the lookups that are possible at once, a namespace may have as many as it leaves free, half of them
if it is alone (the dynamic thresholds of Choudhury and Hahne). And a namespace pays for the CPU time of its
lookups, which its DNS servers can make as long as they like.

No clock is read here: every method gets the time, in seconds that never go back.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from nodeagent.model.facts import DnsOutcome, DnsReply

_PER_SECOND: Final = 200.0
AGAIN_PER_SECOND: Final = 5.0
"""So many hostnames are looked up again, on average, however many there are and whatever their TTLs say; up
to twice as many if namespaces have very different numbers of them."""
LONGEST_SECONDS: Final = 3600.0
_LONGEST_NEGATIVE_SECONDS: Final = 300.0
_FIRST_RETRY_SECONDS: Final = 2.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_SPREAD: Final = 0.2
_CPU_PART: Final = 0.05
"""Of a core, what the lookups of one namespace may take in the long run."""
_CPU_SECONDS: Final = 10.0
"""What they may take at once: 2,000 lookups of the longest answers."""


def pause_after(
    reply: DnsReply, least: float, unchanged: float = 0.0, failing: float = 0.0, names: int = 1
) -> float:
    """Return the seconds until the next lookup, reduced by up to a fifth so that lookups don't coincide.

    At first its TTL (for a negative answer at most five minutes of it: a missing record mostly appears soon),
    then for as long again as nothing has changed, up to an hour. While lookups fail, from 2 s up to a minute
    in the same way. If nothing has changed for an hour, an hour, whatever the answer. Of many hostnames,
    longer: at random, so that the first of them are not looked up late.

    Args:
        reply: The latest.
        least: The shortest interval.
        unchanged: For so many seconds, neither an answer nor the question changed anything.
        failing: For so many seconds, no lookup has had an answer.
        names: The number of hostnames that share AGAIN_PER_SECOND.
    """
    if reply.outcome.tells:
        ttl = float(reply.ttl)
        if reply.outcome is not DnsOutcome.ADDRESSES:
            ttl = min(ttl, _LONGEST_NEGATIVE_SECONDS)
        least /= 1 - _SPREAD
        pause = min(max(least, ttl, unchanged), max(least, LONGEST_SECONDS))
    else:
        pause = min(max(_FIRST_RETRY_SECONDS, failing), _LONGEST_RETRY_SECONDS)
    if unchanged >= LONGEST_SECONDS:
        pause = max(pause, LONGEST_SECONDS)
    return max(pause - _chance(pause * _SPREAD), _chance(2 * names / AGAIN_PER_SECOND))


def _chance(seconds: float) -> float:
    return random.uniform(0, seconds)  # noqa: S311 - spreads load, guards nothing


class LookupQueue:
    """The hostnames to look up, each when it is due; 200 a second at most.

    Args:
        spread_seconds: A hostname that is new or changed waits up to this long, at random: all nodes learn of
            it at the same moment.
        at_once: How many lookups are possible at the same time.
    """

    def __init__(self, spread_seconds: float = 0.0, at_once: float = math.inf) -> None:
        self._spread_seconds = spread_seconds
        self._at_once = at_once
        # Each wanted hostname with its namespace, and those that are being looked up.
        self._wanted: dict[str, str] = {}
        self._asking: dict[str, str] = {}
        # The number of hostnames of each namespace, and until when it has none looked up.
        self._counts: Counter[str] = Counter()
        self._paid_until: dict[str, float] = {}
        # When each waiting hostname is due; one that is being looked up is not in it.
        self._due: dict[str, float] = {}
        # Those that are due again at once, because they changed during their lookup.
        self._overtaken: set[str] = set()
        # The same by namespace, the first one first; an entry counts if it is as in `_due`. The namespace
        # whose turn it is comes first.
        self._heaps: dict[str, list[tuple[float, str]]] = {}
        self._next_at = -math.inf

    def want(self, names: Mapping[str, str], now: float) -> None:
        """Look up these hostnames and no others from now on; each comes with the namespace that claims it."""
        for name in self._wanted.keys() - names.keys():
            self._due.pop(name, None)
            self._overtaken.discard(name)
        new = sorted(names.keys() - self._wanted.keys())
        self._wanted = dict(names)
        self._counts = Counter(names.values())
        self._paid_until = {each: until for each, until in self._paid_until.items() if until > now}
        for name in new:
            self._put(name, now + _chance(self._spread_seconds))

    def hasten(self, names: Iterable[str], now: float, within: float | None = None) -> None:
        """Have these looked up within so many seconds, at random; by default as if they were new."""
        for name in sorted(self._wanted.keys() & names):
            if name not in self._due:
                self._overtaken.add(name)
            elif self._due[name] > now:
                due = now + _chance(self._spread_seconds if within is None else within)
                self._put(name, min(self._due[name], due))

    def take(self, now: float) -> str | None:
        """Return the hostname to look up now, if there is one; `asked` must follow."""
        if self.pause(now) > 0:
            return None
        namespace = next(each for each in self._heaps if self._pause_of(each, now) <= 0)
        heap = self._heaps.pop(namespace)
        _, name = heapq.heappop(heap)
        if heap:
            self._heaps[namespace] = heap  # It had its turn: the others come first.
        del self._due[name]
        self._asking[name] = self._wanted[name]
        # After a rest, as many as a second has are looked up at once.
        self._next_at = max(self._next_at, now - 1) + 1 / _PER_SECOND
        return name

    def pause(self, now: float) -> float:
        """Return the seconds until `take` returns a hostname; infinite if all wait for `asked`."""
        for namespace, heap in [*self._heaps.items()]:
            while heap and self._due.get(heap[0][1]) != heap[0][0]:
                heapq.heappop(heap)
            if not heap:
                del self._heaps[namespace]
        first = min((self._pause_of(namespace, now) for namespace in self._heaps), default=math.inf)
        return max(0.0, first, self._next_at - now)

    def charge(self, name: str, seconds: float, now: float) -> None:
        """Note that the lookup of a name, which has just ended, took so much CPU time."""
        if (namespace := self._asking.get(name)) is not None:
            since = max(self._paid_until.get(namespace, -math.inf), now - _CPU_SECONDS / _CPU_PART)
            self._paid_until[namespace] = since + seconds / _CPU_PART

    def sharing(self, name: str) -> int:
        """Return the number of hostnames with which it shares AGAIN_PER_SECOND, itself included.

        All; but no more than if each namespace had as many as its own: those of others don't delay it.
        """
        return min(self._counts.total(), len(self._counts) * self._counts[self._wanted.get(name, "")])

    def asked(self, name: str, due: float) -> None:
        """Note that it was looked up; if wanted, it is due again then, or at once if it changed meanwhile."""
        self._asking.pop(name, None)
        if name in self._wanted and name not in self._due:
            self._put(name, -math.inf if name in self._overtaken else due)
        self._overtaken.discard(name)

    def _pause_of(self, namespace: str, now: float) -> float:
        """Return the seconds until a namespace has one to look up; infinite until a lookup ends."""
        asking = [*self._asking.values()]
        if asking.count(namespace) >= self._at_once - len(asking):
            return math.inf
        return max(self._heaps[namespace][0][0], self._paid_until.get(namespace, -math.inf)) - now

    def _put(self, name: str, due: float) -> None:
        self._due[name] = due
        heapq.heappush(self._heaps.setdefault(self._wanted[name], []), (due, name))
