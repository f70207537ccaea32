"""Reports a pass in the log, the metrics, the health page and Events; in the log, one line per change."""

import logging
import time
from collections.abc import Iterable, Mapping
from operator import attrgetter

from nodeagent.agent.convergence import NodePass
from nodeagent.agent.reconciler import Reconciler
from nodeagent.agent.reporting.event_recorder import EventRecorder, pending_events
from nodeagent.agent.reporting.health import HealthBoard
from nodeagent.agent.reporting.metrics import Metrics
from nodeagent.agent.reporting.name_counts import NameCounts
from nodeagent.agent.triggers import TriggerBatch
from nodeagent.components.component import COMPONENTS
from nodeagent.model.desired import Desired, LoadBalancerDecision, NameDecision
from nodeagent.plan.incremental import difference
from nodeagent.printable import shown_name

PLAN = "plan"
"""The name of the decision itself on the health page, next to the components."""


class PassReporter:
    """Reports the passes of one agent.

    Attributes:
        names: the number of hostnames by decision of the last pass.

    Args:
        metrics: The agent's.
        board: The agent's; it has each component and PLAN.
        events: Posts Events.
    """

    def __init__(self, metrics: Metrics, board: HealthBoard, events: EventRecorder) -> None:
        self._metrics = metrics
        self._board = board
        self._events = events
        self._told: Desired | None = None
        self.names = NameCounts()
        self._in_conflict: frozenset[str] = frozenset()

    def start_again(self) -> None:
        """Report everything in the next pass: this agent has just become the node's writer."""
        self._told = None
        self.names = NameCounts()

    def of_pass(self, done: NodePass, calls: TriggerBatch, reconciler: Reconciler) -> None:
        """Report what the pass decided, did, repaired and could not do; `calls` are its triggers."""
        desired = done.desired
        changed = changed_names(desired, self._told)
        log_pass(done, self._told, changed)
        if desired != self._told:
            self._metrics.decided(desired)
        self.names.update(*changed)
        for event in pending_events(desired, self.names.codes):
            self._events.record(event)
        self._told = desired
        self._board.component_ok(PLAN)
        self._components(done)
        self._repairs(done, reconciler)
        if not done.errors and not reconciler.retries.failures:
            self._metrics.synced(time.time())
            self._board.synced()
            if calls.events and calls.first is not None:
                self._metrics.event_applied(time.monotonic() - calls.first)

    def _components(self, done: NodePass) -> None:
        errors = done.errors
        for component in done.components:
            seconds = done.seconds.get(component, 0.0)
            if component in errors:
                self._metrics.apply_failed(component, seconds)
                self._board.component_failed(component, errors[component])
            else:
                self._metrics.applied(component, seconds)
                self._board.component_ok(component)

    def _repairs(self, done: NodePass, reconciler: Reconciler) -> None:
        for component, repair in done.repairs.items():
            self._metrics.repaired(component)
            if repair.verdict.is_news and component not in self._in_conflict:
                self._metrics.conflict_began(component)
        self._in_conflict = reconciler.conflicting
        for component in set(COMPONENTS) - self._in_conflict:
            self._metrics.conflict_ended(component)


_LOG = logging.getLogger("nodeagent")
_MOST_LINES = 100
"""Lines of one kind in one pass: the rest is counted, so that a thousand new hostnames don't hide others."""

Fields = dict[str, object]


NameChanges = tuple[list[NameDecision], list[NameDecision]]
"""The decisions on hostnames that are no longer made, and those that are new. Some are in both."""


def changed_names(after: Desired, before: Desired | None) -> NameChanges:
    """Return the decisions on hostnames that differ between two plans. Pure."""
    return difference(before.names if before else (), after.names, attrgetter("name"))


def log_pass(done: NodePass, before: Desired | None, names: NameChanges) -> None:
    """Log the decisions that changed since `before`, what was done and repaired, and what failed.

    `names` are those on hostnames (`changed_names`).
    """
    log_decisions(done.desired, before, names)
    for component, repair in done.repairs.items():
        _say(logging.WARNING, "Repaired drift", {"component": component, "found": repair.found})
        if repair.verdict.is_news:
            _say(
                logging.ERROR,
                "Another program keeps reverting a component",
                {"component": component, "reason": str(repair.verdict)},
            )
    _lines(
        logging.INFO,
        (
            ("Applied a change", {"component": change.component, "change": line})
            for change in done.changes
            for line in change.text.splitlines()
        ),
    )
    for component in sorted(done.recovered):
        _say(logging.INFO, "Applied a component again", {"component": component})
    for component, reason in done.errors.items():
        _say(
            logging.ERROR,
            "Could not apply a component; it is tried again",
            {"component": component, "reason": reason},
        )


def log_decisions(after: Desired, before: Desired | None, names: NameChanges) -> None:
    """Log the changed decisions since `before`: load balancers, hostnames, objects that can't be read.

    `names` are those on hostnames (`changed_names`).
    """
    _lines(logging.INFO, _load_balancers(after, before))
    _lines(logging.INFO, _names(*names))
    _lines(logging.WARNING, _unreadable(after, before))


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
        if earlier is None or (_said(earlier) != _said(decision) and not _confirms(earlier, decision)):
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
    """Return what is worth a line.

    An answer of DNS that differs from the last only in its addresses is not.
    """
    return (
        decision.verdict,
        decision.code,
        decision.load_balancer,
        decision.gist or decision.reason,
    )


def _confirms(earlier: NameDecision, now: NameDecision) -> bool:
    """Whether DNS only confirms an existing line, as for every hostname after the agent's start."""
    return (earlier.code, now.code) == ("KeptUnasked", "Verified")


def _unreadable(after: Desired, before: Desired | None) -> Iterable[tuple[str, Fields]]:
    known = set(before.unreadable) if before else set()
    for entry in after.unreadable:
        if entry not in known:
            yield "Skipped an object", {"object": entry.where, "reason": entry.reason}


def _lines(level: int, lines: Iterable[tuple[str, Fields]]) -> None:
    more = 0
    for number, (message, fields) in enumerate(lines):
        if number < _MOST_LINES:
            _say(level, message, fields)
        else:
            more += 1
    if more:
        _say(level, "Omitted more of the same kind in this pass", {"count": more})


def _say(level: int, message: str, fields: Fields) -> None:
    _LOG.log(level, message, extra={"fields": fields})
