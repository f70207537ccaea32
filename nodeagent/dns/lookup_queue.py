"""When each hostname is looked up: the namespaces take turns, and stable ones come ever less often. Pure.

Thousands of hostnames of one namespace don't delay those of others. Nor do hostnames whose servers take their
time: of the lookups that are possible at once, a namespace may have as many as it leaves free, half of them
if it is alone (the dynamic thresholds of Choudhury and Hahne). Times are seconds that never go back.
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
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 2.0, 60.0
_SPREAD: Final = 0.2


def pause_after(
    reply: DnsReply, least: float, unchanged: float = 0.0, failing: float = 0.0, names: int = 1
) -> float:
    """Return the seconds until the next lookup, reduced by up to a fifth so that lookups don't coincide.

    At first its TTL, `least` at least (for a negative answer at most five minutes of it: a missing record
    mostly appears soon), then for as long again as nothing has changed, up to an hour. While lookups fail,
    from 2 s up to a minute in the same way. If nothing has changed for an hour, an hour, whatever the answer.
    If many `names` share AGAIN_PER_SECOND, longer, at random, so that the first are not looked up late.
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
    """The hostnames to look up, each when it is due; 200 a second at most, `at_once` at the same time.

    One that is new or changed waits up to `spread_seconds`, at random: all nodes learn of it at once.
    """

    def __init__(self, spread_seconds: float = 0.0, at_once: float = math.inf) -> None:
        self._spread_seconds = spread_seconds
        self._at_once = at_once
        # Each wanted hostname with its namespace, their number by namespace, and what is being looked up.
        self._wanted: Mapping[str, str] = {}
        self._counts = Counter[str]()
        self._asking: dict[str, str] = {}
        # When each hostname is due, one that is being looked up only if it changed meanwhile; an entry of the
        # heap counts if it says the same. Those whose time has come wait for their namespace's turn, the next
        # one first.
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._ready: dict[str, dict[str, None]] = {}
        self._next_at = -math.inf

    def want(self, names: Mapping[str, str], now: float) -> None:
        """Look up these hostnames and no others from now on; each comes with the namespace that claims it."""
        new = sorted(names.keys() - self._wanted.keys())
        self._wanted, self._counts, self._ready = names, Counter(names.values()), {}
        self._due = {name: due for name, due in self._due.items() if name in names}
        self._due |= {name: now + _chance(self._spread_seconds) for name in new}
        self._heap = [(due, name) for name, due in self._due.items()]
        heapq.heapify(self._heap)

    def hasten(self, names: Iterable[str], now: float, within: float | None = None) -> None:
        """Have these looked up within so many seconds, at random; by default as if they were new."""
        for name in self._wanted.keys() & names:
            sooner = now + _chance(self._spread_seconds if within is None else within)
            if self._due.get(name, math.inf) > sooner:
                self._put(name, sooner)

    def take(self, now: float) -> str | None:
        """Return the hostname to look up now, if there is one; `asked` must follow."""
        namespace = self._whose_turn(now)
        if namespace is None or self._next_at > now:
            return None
        waiting = self._ready.pop(namespace)
        name = next(iter(waiting))
        del waiting[name], self._due[name]
        if waiting:
            self._ready[namespace] = waiting  # It had its turn: the others come first.
        self._asking[name] = namespace
        # After a rest, as many as a second has are looked up at once.
        self._next_at = max(self._next_at, now - 1) + 1 / _PER_SECOND
        return name

    def pause(self, now: float) -> float:
        """Return the seconds until `take` may return a hostname, unless `asked` is called before."""
        if self._whose_turn(now) is not None:
            return max(0.0, self._next_at - now)
        return max(self._heap[0][0], self._next_at) - now if self._heap else math.inf

    def sharing(self, name: str) -> int:
        """Return the number of hostnames with which it shares AGAIN_PER_SECOND, itself included.

        All; but no more than if each namespace had as many as its own: those of others don't delay it.
        """
        return min(self._counts.total(), len(self._counts) * self._counts[self._wanted.get(name, "")])

    def asked(self, name: str, due: float) -> None:
        """Note that it was looked up; if wanted, it is due again then, or sooner if it changed meanwhile."""
        self._asking.pop(name, None)
        if name in self._wanted:
            self._put(name, min(due, self._due.get(name, math.inf)))

    def _whose_turn(self, now: float) -> str | None:
        """Return the next namespace that has a hostname due and may have another lookup."""
        while self._heap and (self._heap[0][0] <= now or self._due.get(self._heap[0][1]) != self._heap[0][0]):
            due, name = heapq.heappop(self._heap)
            if self._due.get(name) == due and name not in self._asking:
                self._ready.setdefault(self._wanted[name], {})[name] = None
        running, free = Counter(self._asking.values()), self._at_once - len(self._asking)
        return next((namespace for namespace in self._ready if running[namespace] < free), None)

    def _put(self, name: str, due: float) -> None:
        self._due[name] = due
        heapq.heappush(self._heap, (due, name))
