"""Logs what became different: one line for each decision or problem, and not too many of a namespace."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from nodeagent.errors import shown_name
from nodeagent.model.addresses import ByName
from nodeagent.model.decisions import DecisionStatus, LoadBalancerDecision, NameDecision
from nodeagent.model.desired import Desired

_LOG = logging.getLogger("nodeagent")
_MOST_LINES = 100
"""Lines of a kind in one pass: a thousand new hostnames don't hide everything else; the rest is counted."""
_MOST_A_MINUTE = 60
"""Lines of one namespace, or of one component, in a minute."""

Fields = Mapping[str, object]

Line = tuple[str, str, Fields]
"""Whose it is (a namespace; with a slash before it, what is none's), the message, and its fields."""
_Item = TypeVar("_Item")
_Decision = LoadBalancerDecision | NameDecision


class TransitionLog:
    """Logs what differs from the call before. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: dict[str, Sequence[_Decision]] = {}
        self._problems: dict[str, Mapping[str, str]] = {}
        self._minute = 0
        self._used: Counter[str] = Counter()
        self._omitted = 0
        self._omitted_in = -1

    def start_again(self) -> None:
        """Log everything that is so from now on, whatever was logged before."""
        self._latest, self._problems = {}, {}

    def decisions(self, after: Desired) -> None:
        """Log the decisions on load balancers and hostnames, and the objects that can't be read."""
        kinds: dict[str, Sequence[_Decision]]
        kinds = {"Load balancer": after.load_balancers, "Hostname": after.names}
        for kind, decisions in kinds.items():
            if decisions is self._latest.get(kind):
                continue
            before, self._latest[kind] = self._latest.get(kind, ()), decisions
            known = decisions.since(before) if isinstance(decisions, ByName) else None
            self.lines(_changed(kind, *(known or (before, decisions))))
        self.problems("Skipped an object", {skip.where: skip.reason for skip in after.unreadable}, "object")

    def problems(self, message: str, now: Mapping[str, str], field: str = "reason", ended: str = "") -> None:
        """Log each problem when it begins, and with other words when it ends; `now` has its reason."""
        before, self._problems[message] = self._problems.get(message, {}), now
        begun, over = sorted(now.keys() - before.keys()), sorted(before.keys() - now.keys())
        self.lines(
            ((_place(subject), message, {field: subject, "reason": now[subject]}) for subject in begun),
            logging.WARNING,
        )
        if ended:
            self.lines((_place(subject), ended, {field: subject}) for subject in over)

    def lines(self, lines: Iterable[Line], level: int = logging.INFO) -> None:
        """Log these lines, as far as each namespace or component has some left; they take turns."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._minute, self._used = minute, Counter()
        written = 0
        for whose, message, fields in in_turn(lines, lambda line: line[0]):
            if written < _MOST_LINES and self._used[whose] < _MOST_A_MINUTE:
                self._used[whose] += 1
                written += 1
                say(level, message, **fields)
            else:
                self._omitted += 1
        if self._omitted and self._omitted_in != minute:
            say(logging.INFO, "Omitted more lines of the same kinds", count=self._omitted)
            self._omitted, self._omitted_in = 0, minute


def _place(subject: str) -> str:
    """Return what has a limit of its own: the words before the first slash, such as `KIND NAMESPACE`."""
    return f"/{subject.partition('/')[0]}"


def _changed(kind: str, before: Sequence[_Decision], after: Sequence[_Decision]) -> Iterator[Line]:
    """Yield a line for each decision that is new, is another in essence, or is gone."""
    # By id, which no other has while both are held: a planner keeps what stays as it is.
    old, new = ({id(decision): decision for decision in decisions} for decisions in (before, after))
    # Of several on one subject, such as a Route's on two load balancers, the first decides.
    gone = {_subject(old[key]): old[key] for key in reversed(old) if key not in new}
    come = {_subject(new[key]): new[key] for key in reversed(new) if key not in old}
    for subject in sorted(gone.keys() | come.keys()):
        was, now = gone.get(subject), come.get(subject)
        namespace, *about = subject
        if now is None:
            yield namespace, f"{kind} removed", dict(about)
        elif was is None or _essence(was) != _essence(now):
            remarks = "; ".join(now.remarks) if isinstance(now, LoadBalancerDecision) else ""
            fields = {**dict(about), "reason": now.reason, **({"remarks": remarks} if remarks else {})}
            yield namespace, f"{kind} {now.status}", fields


def _subject(decision: _Decision) -> Any:  # noqa: ANN401
    """Return the namespace, and the fields of its line."""
    if isinstance(decision, LoadBalancerDecision):
        return decision.load_balancer.namespace, ("service", decision.load_balancer.path)
    by = decision.claimed_by
    return by.namespace, ("name", shown_name(decision.name)), ("claimed_by", str(by))


def _essence(decision: _Decision) -> object:
    """Return what is worth a line; of a hostname not that DNS confirms it, or has other addresses."""
    if isinstance(decision, LoadBalancerDecision):
        return decision
    code = "Verified" if decision.code == "KeptUnasked" else decision.code  # after each start of the agent
    why = "" if decision.status is DecisionStatus.SERVED else decision.stable_reason
    return decision.status, code, decision.load_balancer, why


def in_turn(items: Iterable[_Item], namespace_of: Callable[[_Item], str]) -> list[_Item]:
    """Return the items so that each namespace has its first before any has its second. Pure."""
    seen: Counter[str] = Counter()

    def turn(item: _Item) -> int:
        seen[namespace_of(item)] += 1
        return seen[namespace_of(item)]

    return sorted(items, key=turn)


def say(level: int, message: str, /, **fields: object) -> None:
    """Log one line."""
    _LOG.log(level, message, extra={"fields": fields})
