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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from nodeagent.backoff import backoff
from nodeagent.model.facts import DnsOutcome, DnsReply

FIRST_PER_SECOND: Final = 200.0
LONGEST_SECONDS: Final = 600.0
_LIVELY_PER_SECOND: Final = 5.0
_STABLE_PER_SECOND: Final = 1.0
_LONGEST_NEGATIVE_SECONDS: Final = 300.0
_FIRST_RETRY_SECONDS: Final = 2.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_UNCHANGED_SECONDS: Final = 3600.0
_SPREAD: Final = 0.2
_CPU_PART: Final = 0.05
"""Of a core, what the lookups of one namespace may take in the long run."""
_CPU_SECONDS: Final = 10.0
"""What they may take at once: 5,000 usual lookups."""


class Lane(IntEnum):
    """Why a hostname waits. Each lane has an allowance of its own, and an earlier one comes first."""

    FIRST = 0
    """It was never looked up, or its objects changed: its answer is urgent."""
    LIVELY = 1
    """Its answer changed lately, or DNS failed."""
    STABLE = 2
    """Its answer stayed the same for so long that it is looked up at the longest interval."""


_Entry = tuple[float, str, Lane]
"""When a name is due, the name, and where it waits."""


def pause_after(reply: DnsReply, failures: int, same: int, least: float, unchanged: float = 0.0) -> float:
    """Return the seconds until the next lookup, reduced by up to a fifth so that lookups don't coincide.

    After a failure 2 s, 4 s, 8 s up to a minute. Otherwise, at first its TTL (for a negative answer at most
    five minutes of it: a missing record mostly appears soon), then twice as long after each equal answer, up
    to ten minutes. If nothing has changed for an hour, ten minutes in any case.

    Args:
        reply: The latest.
        failures: How many failures there were in a row.
        same: How many answers in a row were the same as the one before.
        least: The shortest interval.
        unchanged: For so many seconds, no answer changed anything.
    """
    if not reply.outcome.tells:
        pause = backoff(failures, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
    else:
        ttl = float(reply.ttl)
        if reply.outcome is not DnsOutcome.ADDRESSES:
            ttl = min(ttl, _LONGEST_NEGATIVE_SECONDS)
        least /= 1 - _SPREAD
        pause = backoff(same + 1, max(least, ttl), max(least, LONGEST_SECONDS))
    if unchanged >= _UNCHANGED_SECONDS:
        pause = max(pause, LONGEST_SECONDS)
    return pause * random.uniform(1 - _SPREAD, 1)  # noqa: S311 - spreads load, guards nothing


def lane_after(pause: float) -> Lane:
    """Return the lane of a hostname that was looked up and pauses for so many seconds."""
    return Lane.STABLE if pause >= LONGEST_SECONDS * (1 - _SPREAD) else Lane.LIVELY


class LookupQueue:
    """The hostnames to look up, in their turn: by lanes, and in each lane the namespaces in turn.

    Args:
        first_per_second: How many hostnames of the first lane may be looked up per second. The others have
            less: thousands of hostnames with short TTLs are looked up less often than their TTLs say, so the
            load stays low.
        spread_seconds: A hostname that is new or changed waits up to this long, at random: all nodes learn of
            it at the same moment.
        at_once: How many lookups are possible at the same time.
    """

    def __init__(
        self,
        first_per_second: float = FIRST_PER_SECOND,
        spread_seconds: float = 0.0,
        at_once: float = math.inf,
    ) -> None:
        self._spread_seconds = spread_seconds
        self._at_once = at_once
        # The hostnames that are being looked up, each with its namespace; and how many each namespace has.
        self._asking: dict[str, str] = {}
        self._busy: Counter[str] = Counter()
        # The CPU seconds that each namespace has left.
        self._cpu: dict[str, _Allowance] = {}
        # Each wanted hostname with its namespace.
        self._wanted: dict[str, str] = {}
        # The entry of each waiting hostname; one that is being looked up is not in it. It shows which entries
        # of the lanes still count: those that are in it themselves.
        self._due: dict[str, _Entry] = {}
        # Those that changed during their lookup.
        self._overtaken: set[str] = set()
        self._lanes = {
            Lane.FIRST: _Queue(_Allowance(first_per_second, first_per_second)),
            Lane.LIVELY: _Queue(_Allowance(_LIVELY_PER_SECOND, _LIVELY_PER_SECOND)),
            Lane.STABLE: _Queue(_Allowance(_STABLE_PER_SECOND, _STABLE_PER_SECOND)),
        }

    def want(self, names: Mapping[str, str], now: float) -> None:
        """Look up these hostnames and no others from now on; each comes with the namespace that claims it."""
        for name in self._wanted.keys() - names.keys():
            self._due.pop(name, None)
            self._overtaken.discard(name)
        new = sorted(names.keys() - self._wanted.keys())
        self._wanted = dict(names)
        for name in new:
            self._put(name, now + self._chance(), Lane.FIRST)

    def hasten(self, names: Iterable[str], now: float, lane: Lane) -> None:
        """Make these names due now, unless they wait in an earlier lane."""
        for name in sorted(self._wanted.keys() & names):
            if name not in self._due:
                self._overtaken.add(name)
                continue
            due, _, waits_in = self._due[name]
            if waits_in > lane or (waits_in == lane and due > now):
                self._put(name, now + self._chance(), lane)

    def take(self, now: float) -> str | None:
        """Return the hostname to look up now, if there is one; `asked` must follow."""
        for queue in self._lanes.values():
            queue.drop_stale(self._due)
            name = queue.take(now, self._wait)
            if name is not None:
                del self._due[name]
                self._ended(name)
                namespace = self._asking[name] = self._wanted[name]
                self._busy[namespace] += 1
                return name
        return None

    def pause(self, now: float) -> float:
        """Return the seconds until `take` may return a hostname; infinite if all wait for `asked`."""
        for queue in self._lanes.values():
            queue.drop_stale(self._due)
        return min(queue.pause(now, self._wait) for queue in self._lanes.values())

    def charge(self, name: str, seconds: float, now: float) -> None:
        """Note that the lookup of a name, which has just ended, took so much CPU time."""
        namespace = self._asking.get(name)
        if namespace is not None:
            self._cpu.setdefault(namespace, _Allowance(_CPU_PART, _CPU_SECONDS)).spend(seconds, now)
            if self._cpu[namespace].is_full(now):
                del self._cpu[namespace]

    def asked(self, name: str, due: float, lane: Lane = Lane.LIVELY) -> None:
        """Note that it was looked up; if wanted, it is due again then, or at once if it changed meanwhile."""
        self._ended(name)
        if name in self._wanted and name not in self._due:
            if name in self._overtaken:
                due, lane = -math.inf, Lane.FIRST
            self._put(name, due, lane)
        self._overtaken.discard(name)

    def _wait(self, namespace: str, now: float) -> float:
        """Return the seconds until a namespace may look up one more; infinite until one of its ends."""
        busy = self._busy.get(namespace, 0)
        if busy and busy >= self._at_once - len(self._asking):
            return math.inf
        cpu = self._cpu.get(namespace)
        return cpu.pause(now, 0.0) if cpu else 0.0

    def _ended(self, name: str) -> None:
        namespace = self._asking.pop(name, None)
        if namespace is not None:
            self._busy[namespace] -= 1
            if not self._busy[namespace]:
                del self._busy[namespace]

    def _put(self, name: str, due: float, lane: Lane) -> None:
        entry = self._due[name] = (due, name, lane)
        self._lanes[lane].put(self._wanted[name], entry)

    def _chance(self) -> float:
        return random.uniform(0, self._spread_seconds)  # noqa: S311 - spreads load, guards nothing


@dataclass(slots=True)
class _Allowance:
    """A token bucket: so many per second, and at most so many at once after a rest."""

    per_second: float
    most: float
    _left: float = math.inf
    _counted_at: float = 0.0

    def take(self, now: float) -> bool:
        if self.pause(now) > 0:
            return False
        self._left -= 1
        return True

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
    """One lane's names by namespace, those due soonest first; the namespace whose turn it is comes first."""

    allowance: _Allowance
    heaps: dict[str, list[_Entry]] = field(default_factory=dict)

    def put(self, namespace: str, entry: _Entry) -> None:
        heapq.heappush(self.heaps.setdefault(namespace, []), entry)

    def take(self, now: float, wait: Callable[[str, float], float]) -> str | None:
        due = (namespace for namespace, heap in self.heaps.items() if heap[0][0] <= now)
        turn = next((namespace for namespace in due if wait(namespace, now) <= 0), None)
        if turn is None or not self.allowance.take(now):
            return None
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
