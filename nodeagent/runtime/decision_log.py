"""Logs the decisions that a pass changed: one line each, and not too many of a namespace."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from nodeagent.model.desired import Desired, LoadBalancerDecision, NameDecision
from nodeagent.printable import shown_name

_LOG = logging.getLogger("nodeagent")
_MOST_LINES = 100
"""Lines in one pass: the rest is counted, so that a thousand new hostnames don't hide everything else."""
_MOST_A_MINUTE = 60
"""Lines about the objects of one namespace in a minute."""

Fields = dict[str, object]

_Item = TypeVar("_Item")
_Line = tuple[str, str, Fields]
"""The namespace that it is about, the message, and its fields."""


class DecisionLog:
    """Logs the decisions that differ from those before; namespaces take turns.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before = Desired()
        self._names: dict[int, NameDecision] = {}
        self._minute = 0
        self._used: Counter[str] = Counter()

    def start_again(self) -> None:
        """Log every decision of the next plan."""
        self._before, self._names = Desired(), {}

    def log(self, after: Desired) -> None:
        """Log what changed since the last call: load balancers, hostnames, objects that can't be read."""
        before, self._before = self._before, after
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._minute, self._used = minute, Counter()
        self._write(_load_balancers(before, after))
        if after.names is not before.names:
            # By id, which no other has while a decision is held here: a planner keeps what stays as it is.
            old, self._names = self._names, dict(zip(map(id, after.names), after.names, strict=True))
            self._write(_names(old, self._names))
        known = set(before.unreadable)
        for one in after.unreadable:
            if one not in known:
                say(logging.WARNING, "Skipped an object", {"object": one.where, "reason": one.reason})

    def _write(self, lines: Iterable[_Line]) -> None:
        written = omitted = 0
        for namespace, message, fields in in_turn(lines, lambda line: line[0]):
            if written < _MOST_LINES and self._used[namespace] < _MOST_A_MINUTE:
                self._used[namespace] += 1
                written += 1
                say(logging.INFO, message, fields)
            else:
                omitted += 1
        if omitted:
            say(logging.INFO, "Omitted more of the same kind in this pass", {"count": omitted})


def _load_balancers(before: Desired, after: Desired) -> Iterator[_Line]:
    known: Mapping[Hashable, LoadBalancerDecision] = {one.load_balancer: one for one in before.load_balancers}
    now = {one.load_balancer: one for one in after.load_balancers}
    for service, decision in now.items():
        if known.get(service) != decision:
            fields: Fields = {"service": service.path, "reason": decision.reason}
            if decision.remarks:
                fields["remarks"] = "; ".join(decision.remarks)
            yield service.namespace, f"Load balancer {decision.status}", fields
    for decision in known.values():
        service = decision.load_balancer
        if service not in now:
            yield service.namespace, "Load balancer removed", {"service": service.path}


def _names(old: Mapping[int, NameDecision], new: Mapping[int, NameDecision]) -> Iterator[_Line]:
    """Yield the decisions on hostnames that differ."""
    known = {(old[each].name, old[each].claimed_by): old[each] for each in old.keys() - new.keys()}
    now = {(new[each].name, new[each].claimed_by): new[each] for each in new.keys() - old.keys()}
    for key, decision in sorted(now.items()):
        earlier = known.get(key)
        # DNS only confirms an existing line, as for every hostname after the agent's start.
        confirmed = earlier is not None and (earlier.code, decision.code) == ("KeptUnasked", "Verified")
        if earlier is None or (_essence(earlier) != _essence(decision) and not confirmed):
            yield _line(f"Hostname {decision.status}", decision, {"reason": decision.reason})
    yield from (_line("Hostname removed", known[key], {}) for key in known.keys() - now.keys())


def _line(message: str, decision: NameDecision, more: Fields) -> _Line:
    by = decision.claimed_by
    return by.namespace, message, {"name": shown_name(decision.name), "claimed_by": str(by), **more}


def _essence(decision: NameDecision) -> tuple[object, ...]:
    """Return what is worth a line: an answer of DNS that differs only in its addresses is not."""
    return (decision.status, decision.code, decision.load_balancer, decision.stable_reason)


def in_turn(items: Iterable[_Item], namespace_of: Callable[[_Item], str]) -> list[_Item]:
    """Return the items in an order in which each namespace has its first before any has its second. Pure."""
    before: Counter[str] = Counter()
    ranked: list[tuple[int, _Item]] = []
    for item in items:
        namespace = namespace_of(item)
        ranked.append((before[namespace], item))
        before[namespace] += 1
    return [item for _, item in sorted(ranked, key=lambda one: one[0])]


def say(level: int, message: str, fields: Fields) -> None:
    """Log one line with fields."""
    _LOG.log(level, message, extra={"fields": fields})
