"""Which name is asked when: new ones first, each again after its time, none faster than a server minds. Pure.

Namespaces take turns: thousands of names of one of them stretch nobody else's.

No clock is read here: every method is told the time, in seconds that never go back.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from nodeagent.backoff import backoff
from nodeagent.model.dns import DnsOutcome, DnsReply

FIRST_PER_SECOND: Final = 50.0
_AGAIN_PER_SECOND: Final = 5.0
_NEVER_ASKED: Final = -1.0
_LONGEST_SECONDS: Final = 3600.0
# What is not there yet mostly comes soon: Ingresses are made before their names' records are.
_LONGEST_NEGATIVE_SECONDS: Final = 300.0
_FIRST_RETRY_SECONDS: Final = 2.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_JITTER: Final = 0.1

_Queue = TypeVar("_Queue")


def pause_after(reply: DnsReply, failures: int, least: float) -> float:
    """Seconds until a name is asked again: its TTL within bounds, or ever longer after failures in a row.

    At least `least`, whatever the TTL, and an hour at most (five minutes where there is nothing); 2 s, 4 s,
    8 s up to a minute after a failure. Up to a tenth more or less, so that names don't march in step.
    """
    if not reply.outcome.tells:
        pause = backoff(failures, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
    elif reply.outcome is DnsOutcome.ADDRESSES:
        pause = max(least, min(reply.ttl, _LONGEST_SECONDS))
    else:
        pause = max(least, min(reply.ttl, _LONGEST_NEGATIVE_SECONDS))
    return pause * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load, guards nothing


class Agenda:
    """The names to ask, in their turn.

    Names that were never asked have an allowance of their own and go first. All others share a smaller one:
    thousands of names with short TTLs are asked less often than their TTLs say, and nobody is loaded.
    Of either, each namespace has its turn.

    Args:
        first_per_second: How many names that were never asked may be asked a second.
    """

    def __init__(self, first_per_second: float = FIRST_PER_SECOND) -> None:
        # Each wanted name with its namespace.
        self._wanted: dict[str, str] = {}
        # When each waiting name is due; one that is being asked is not in it. It tells which entries of the
        # queues still count.
        self._due: dict[str, float] = {}
        # The queues, by namespace; whose turn it is comes first.
        self._new: dict[str, deque[str]] = {}
        self._again: dict[str, list[tuple[float, str]]] = {}
        self._new_allowance = _Allowance(first_per_second)
        self._again_allowance = _Allowance(_AGAIN_PER_SECOND)

    def want(self, names: Mapping[str, str]) -> None:
        """Asks for these names and no others from now on; each with the namespace that it is asked for."""
        for name in self._wanted.keys() - names.keys():
            self._due.pop(name, None)
        for name in sorted(names.keys() - self._wanted.keys()):
            self._due[name] = _NEVER_ASKED
            self._new.setdefault(names[name], deque()).append(name)
        self._wanted = dict(names)

    def take(self, now: float) -> str | None:
        """The name to ask now, if there is one; `asked` must follow."""
        self._drop_stale()
        if self._new and self._new_allowance.take(now):
            namespace, queue = next(iter(self._new.items()))
            name = queue.popleft()
            _to_the_end(self._new, namespace)
        else:
            due = (each for each, heap in self._again.items() if heap[0][0] <= now)
            turn = next(due, None)
            if turn is None or not self._again_allowance.take(now):
                return None
            _, name = heapq.heappop(self._again[turn])
            _to_the_end(self._again, turn)
        del self._due[name]
        return name

    def pause(self, now: float) -> float:
        """Seconds until `take` may give a name; infinite when none is waiting."""
        self._drop_stale()
        pauses = [math.inf]
        if self._new:
            pauses.append(self._new_allowance.pause(now))
        if self._again:
            first = min(heap[0][0] for heap in self._again.values())
            pauses.append(max(first - now, self._again_allowance.pause(now)))
        return min(pauses)

    def asked(self, name: str, due: float) -> None:
        """The name was asked and is due again then, unless nobody wants it any more."""
        if name in self._wanted and name not in self._due:
            self._due[name] = due
            heapq.heappush(self._again.setdefault(self._wanted[name], []), (due, name))

    def hasten(self, now: float) -> None:
        """All names that were asked before are due now."""
        again = [name for name, due in self._due.items() if due != _NEVER_ASKED]
        self._due |= dict.fromkeys(again, now)
        self._again = {}
        for name in sorted(again):
            self._again.setdefault(self._wanted[name], []).append((now, name))

    def _drop_stale(self) -> None:
        for namespace, queue in [*self._new.items()]:
            while queue and self._due.get(queue[0]) != _NEVER_ASKED:
                queue.popleft()
            if not queue:
                del self._new[namespace]
        for namespace, heap in [*self._again.items()]:
            while heap and self._due.get(heap[0][1]) != heap[0][0]:
                heapq.heappop(heap)
            if not heap:
                del self._again[namespace]


def _to_the_end(queues: dict[str, _Queue], namespace: str) -> None:
    """The namespace had its turn: the others come first."""
    queues[namespace] = queues.pop(namespace)


@dataclass(slots=True)
class _Allowance:
    """A token bucket: so many a second, and as many at once after a second of rest."""

    per_second: float
    _left: float = math.inf
    _counted_at: float = 0.0

    def take(self, now: float) -> bool:
        if self.pause(now) > 0:
            return False
        self._left -= 1
        return True

    def pause(self, now: float) -> float:
        """Seconds until one more is allowed."""
        self._left = min(self.per_second, self._left + (now - self._counted_at) * self.per_second)
        self._counted_at = now
        return 0.0 if self._left >= 1 else (1 - self._left) / self.per_second
