"""Logs the decisions that a pass changed: one line each, and not too many of a kind."""

import logging
from collections.abc import Iterable, Mapping

from nodeagent.model.desired import Desired, LoadBalancerDecision, NameDecision
from nodeagent.printable import shown_name

_LOG = logging.getLogger("nodeagent")
_MOST_LINES = 100
"""Lines of one kind in one pass: the rest is counted, so that a thousand new hostnames don't hide others."""

Fields = dict[str, object]

NameChanges = tuple[list[NameDecision], list[NameDecision]]
"""The decisions on hostnames that are no longer made, and those that are new."""


def changed_names(after: Desired, before: Desired | None) -> NameChanges:
    """Return the decisions on hostnames that differ between two plans: a planner keeps the others. Pure."""
    if before and before.names is after.names:
        return [], []
    old, new = ({id(each): each for each in plan.names} if plan else {} for plan in (before, after))
    gone, found = old.keys() - new.keys(), new.keys() - old.keys()
    return [old[key] for key in old if key in gone], [new[key] for key in new if key in found]


def log_decisions(after: Desired, before: Desired | None, names: NameChanges) -> None:
    """Log the changed decisions since `before`: load balancers, hostnames, objects that can't be read.

    `names` are those on hostnames (`changed_names`).
    """
    log_lines(logging.INFO, _load_balancers(after, before))
    log_lines(logging.INFO, _names(*names))
    known = set(before.unreadable) if before else set()
    new = (entry for entry in after.unreadable if entry not in known)
    log_lines(
        logging.WARNING, (("Skipped an object", {"object": one.where, "reason": one.reason}) for one in new)
    )


def _load_balancers(after: Desired, before: Desired | None) -> Iterable[tuple[str, Fields]]:
    known: Mapping[object, LoadBalancerDecision] = {
        decision.load_balancer: decision for decision in (before.load_balancers if before else ())
    }
    for decision in after.load_balancers:
        if known.get(decision.load_balancer) != decision:
            fields: Fields = {"service": decision.load_balancer.path, "reason": decision.reason}
            if decision.remarks:
                fields["remarks"] = "; ".join(decision.remarks)
            yield f"Load balancer {decision.verdict}", fields
    gone = set(known) - {decision.load_balancer for decision in after.load_balancers}
    for decision in known.values():
        if decision.load_balancer in gone:
            yield "Load balancer removed", {"service": decision.load_balancer.path}


def _names(removed: list[NameDecision], added: list[NameDecision]) -> Iterable[tuple[str, Fields]]:
    known = {_key(decision): decision for decision in removed}
    for decision in added:
        earlier = known.get(_key(decision))
        # DNS only confirms an existing line, as for every hostname after the agent's start.
        confirmed = earlier is not None and (earlier.code, decision.code) == ("KeptUnasked", "Verified")
        if earlier is None or (_said(earlier) != _said(decision) and not confirmed):
            yield (
                f"Hostname {decision.verdict}",
                {
                    "name": shown_name(decision.name),
                    "claimed_by": str(decision.claimed_by),
                    "reason": decision.reason,
                },
            )
    staying = {_key(decision) for decision in added}
    for decision in (decision for key, decision in known.items() if key not in staying):
        yield "Hostname removed", {"name": shown_name(decision.name), "claimed_by": str(decision.claimed_by)}


def _key(decision: NameDecision) -> tuple[object, ...]:
    return (decision.name, decision.claimed_by)


def _said(decision: NameDecision) -> tuple[object, ...]:
    """Return what is worth a line: an answer of DNS that differs only in its addresses is not."""
    return (decision.verdict, decision.code, decision.load_balancer, decision.stable_reason)


def log_lines(level: int, lines: Iterable[tuple[str, Fields]]) -> None:
    """Log the first hundred of them, and the number of the rest."""
    more = 0
    for number, (message, fields) in enumerate(lines):
        if number < _MOST_LINES:
            say(level, message, fields)
        else:
            more += 1
    if more:
        say(level, "Omitted more of the same kind in this pass", {"count": more})


def say(level: int, message: str, fields: Fields) -> None:
    """Log one line with fields."""
    _LOG.log(level, message, extra={"fields": fields})
