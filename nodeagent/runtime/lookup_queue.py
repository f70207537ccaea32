"""When each hostname is looked up: new and changed ones first, stable ones less and less often. Pure.

Namespaces take turns: thousands of hostnames of one of them don't delay those of others. Nor do hostnames
whose servers take their time: of the lookups that are possible at once, a namespace may have as many as it
leaves free, half of them if it is alone (the dynamic thresholds of Choudhury and Hahne). And a namespace pays
for the CPU time of its lookups, which its DNS servers can make as long as they like.

No clock is read here: every method gets the time, in seconds that never go back.
"""

import heapq
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodeagent.model.facts import DnsOutcome, DnsReply

_FIRST_PER_SECOND: Final = 200.0
LONGEST_SECONDS: Final = 3600.0
_AGAIN_PER_SECOND: Final = 5.0
_LONGEST_NEGATIVE_SECONDS: Final = 300.0
_FIRST_RETRY_SECONDS: Final = 2.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_SPREAD: Final = 0.2
_CPU_PART: Final = 0.05
"""Of a core, what the lookups of one namespace may take in the long run."""
_CPU_SECONDS: Final = 10.0
"""What they may take at once: 5,000 usual lookups."""


def pause_after(reply: DnsReply, least: float, unchanged: float = 0.0, failing: float = 0.0) -> float:
    """Return the seconds until the next lookup, reduced by up to a fifth so that lookups don't coincide.

    At first its TTL (for a negative answer at most five minutes of it: a missing record mostly appears soon),
    then for as long again as nothing has changed, up to an hour. While lookups fail, from 2 s up to a minute
    in the same way. If nothing has changed for an hour, an hour, whatever the answer.

    Args:
        reply: The latest.
        least: The shortest interval.
        unchanged: For so many seconds, neither an answer nor the question changed anything.
        failing: For so many seconds, no lookup has had an answer.
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
    return pause * random.uniform(1 - _SPREAD, 1)  # noqa: S311 - spreads load, guards nothing


_Entry = tuple[float, str, bool]
"""When a name is due, the name, and whether it is new or changed."""


class LookupQueue:
    """The hostnames to look up, in their turn: those that are new or changed, then all others.

    Of both, the namespaces take turns. Thousands of hostnames with short TTLs are looked up less often than
    their TTLs say, so the load stays low.

    Args:
        spread_seconds: A hostname that is new or changed waits up to this long, at random: all nodes learn of
            it at the same moment.
        at_once: How many lookups are possible at the same time.
    """

    def __init__(self, spread_seconds: float = 0.0, at_once: float = math.inf) -> None:
        self._spread_seconds = spread_seconds
        self._at_once = at_once
        # The hostnames that are being looked up, each with its namespace.
        self._asking: dict[str, str] = {}
        # The CPU seconds that each namespace has left.
        self._cpu: dict[str, _Allowance] = {}
        # Each wanted hostname with its namespace.
        self._wanted: dict[str, str] = {}
        # The entry of each waiting hostname; one that is being looked up is not in it. It shows which entries
        # of the queues still count: those that are in it themselves.
        self._due: dict[str, _Entry] = {}
        # Those that changed during their lookup.
        self._overtaken: set[str] = set()
        # Those that are new or changed, and then the others.
        self._queues = {
            first: _Queue(_Allowance(most, most))
            for first, most in ((True, _FIRST_PER_SECOND), (False, _AGAIN_PER_SECOND))
        }

    def want(self, names: Mapping[str, str], now: float) -> None:
        """Look up these hostnames and no others from now on; each comes with the namespace that claims it."""
        for name in self._wanted.keys() - names.keys():
            self._due.pop(name, None)
            self._overtaken.discard(name)
        new = sorted(names.keys() - self._wanted.keys())
        self._wanted = dict(names)
        for name in new:
            self._put(name, now + self._chance(), first=True)

    def hasten(self, names: Iterable[str], now: float, *, first: bool = False) -> None:
        """Make these names due now, as early as new ones or not."""
        for name in sorted(self._wanted.keys() & names):
            if name not in self._due:
                self._overtaken.add(name)
                continue
            due, _, was_first = self._due[name]
            if first > was_first or (first == was_first and due > now):
                self._put(name, now + self._chance(), first=first)

    def take(self, now: float) -> str | None:
        """Return the hostname to look up now, if there is one; `asked` must follow."""
        for queue in self._queues.values():
            queue.drop_stale(self._due)
            name = queue.take(now, self._wait)
            if name is not None:
                del self._due[name]
                self._asking[name] = self._wanted[name]
                return name
        return None

    def pause(self, now: float) -> float:
        """Return the seconds until `take` may return a hostname; infinite if all wait for `asked`."""
        for queue in self._queues.values():
            queue.drop_stale(self._due)
        return min(queue.pause(now, self._wait) for queue in self._queues.values())

    def charge(self, name: str, seconds: float, now: float) -> None:
        """Note that the lookup of a name, which has just ended, took so much CPU time."""
        namespace = self._asking.get(name)
        if namespace is not None:
            self._cpu.setdefault(namespace, _Allowance(_CPU_PART, _CPU_SECONDS)).spend(seconds, now)
            if self._cpu[namespace].is_full(now):
                del self._cpu[namespace]

    def asked(self, name: str, due: float) -> None:
        """Note that it was looked up; if wanted, it is due again then, or at once if it changed meanwhile."""
        self._asking.pop(name, None)
        if name in self._wanted and name not in self._due:
            overtaken = name in self._overtaken
            self._put(name, -math.inf if overtaken else due, first=overtaken)
        self._overtaken.discard(name)

    def _wait(self, namespace: str, now: float) -> float:
        """Return the seconds until a namespace may look up one more; infinite until a lookup ends."""
        asking = [*self._asking.values()]
        if asking.count(namespace) >= self._at_once - len(asking):
            return math.inf
        cpu = self._cpu.get(namespace)
        return cpu.pause(now, 0.0) if cpu else 0.0

    def _put(self, name: str, due: float, *, first: bool) -> None:
        entry = self._due[name] = (due, name, first)
        self._queues[first].put(self._wanted[name], entry)

    def _chance(self) -> float:
        return random.uniform(0, self._spread_seconds)  # noqa: S311 - spreads load, guards nothing


@dataclass(slots=True)
class _Allowance:
    """A token bucket: so many per second, and at most so many at once after a rest."""

    per_second: float
    most: float
    _left: float = math.inf
    _counted_at: float = 0.0

    def spend(self, amount: float, now: float) -> None:
        """Take so much, whether it is there or not."""
        self._count(now)
        self._left -= amount

    def is_full(self, now: float) -> bool:
        """Return whether nothing is missing."""
        self._count(now)
        return self._left >= self.most

    def pause(self, now: float, least: float = 1.0) -> float:
        """Return the seconds until there is so much."""
        self._count(now)
        return 0.0 if self._left >= least else (least - self._left) / self.per_second

    def _count(self, now: float) -> None:
        self._left = min(self.most, self._left + (now - self._counted_at) * self.per_second)
        self._counted_at = now


@dataclass(slots=True)
class _Queue:
    """Names by namespace, those due soonest first; the namespace whose turn it is comes first."""

    allowance: _Allowance
    heaps: dict[str, list[_Entry]] = field(default_factory=dict)

    def put(self, namespace: str, entry: _Entry) -> None:
        heapq.heappush(self.heaps.setdefault(namespace, []), entry)

    def take(self, now: float, wait: Callable[[str, float], float]) -> str | None:
        due = (namespace for namespace, heap in self.heaps.items() if heap[0][0] <= now)
        turn = next((namespace for namespace in due if wait(namespace, now) <= 0), None)
        if turn is None or self.allowance.pause(now) > 0:
            return None
        self.allowance.spend(1, now)
        heap = self.heaps.pop(turn)
        _, name, _ = heapq.heappop(heap)
        if heap:
            self.heaps[turn] = heap  # It had its turn: the others come first.
        return name

    def pause(self, now: float, wait: Callable[[str, float], float]) -> float:
        pauses = (max(heap[0][0] - now, wait(namespace, now)) for namespace, heap in self.heaps.items())
        return max(min(pauses, default=math.inf), self.allowance.pause(now))

    def drop_stale(self, due: Mapping[str, _Entry]) -> None:
        """Drop entries of hostnames that are no longer wanted, or wait elsewhere or for another time."""
        for namespace, heap in [*self.heaps.items()]:
            while heap and due.get(heap[0][1]) is not heap[0]:
                heapq.heappop(heap)
            if not heap:
                del self.heaps[namespace]
