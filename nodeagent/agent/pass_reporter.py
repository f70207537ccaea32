"""Reports a pass in the log, the metrics, the health page and Events; in the log, one line per change."""

import logging
import time

from nodeagent.agent.convergence import NodePass
from nodeagent.agent.metrics import AgentMetrics
from nodeagent.agent.reconciler import Reconciler
from nodeagent.components.component import COMPONENTS
from nodeagent.model.desired import Desired
from nodeagent.runtime.decision_log import (
    Fields,
    NameChanges,
    changed_names,
    log_decisions,
    log_lines,
    say,
)
from nodeagent.runtime.event_recorder import EventRecorder, pending_events
from nodeagent.runtime.health import HealthBoard
from nodeagent.runtime.triggers import TriggerBatch

PLAN = "plan"
"""The name of the decision itself on the health page, next to the components."""


class PassReporter:
    """Reports the passes of one agent; its board has each component and PLAN."""

    def __init__(self, metrics: AgentMetrics, board: HealthBoard, events: EventRecorder) -> None:
        self._metrics = metrics
        self._board = board
        self._events = events
        self._told: Desired | None = None
        self._in_conflict: frozenset[str] = frozenset()

    def start_again(self) -> None:
        """Report everything in the next pass: this agent has just become the node's writer."""
        self._told = None

    def report(self, done: NodePass, calls: TriggerBatch, reconciler: Reconciler) -> None:
        """Report what the pass decided, did, repaired and could not do; `calls` are its triggers."""
        desired = done.desired
        changed = changed_names(desired, self._told)
        log_pass(done, self._told, changed)
        self._metrics.desired = desired
        for event in pending_events(desired):
            self._events.record(event)
        self._told = desired
        self._board.component_ok(PLAN)
        for component in done.components:
            self._metrics.count("applies_total", component)
            self._metrics.observe("apply_duration_seconds", done.seconds.get(component, 0.0), component)
            if component in done.errors:
                self._metrics.count("apply_failures_total", component)
                self._board.component_failed(component, done.errors[component])
            else:
                self._board.component_ok(component)
        for component, repair in done.repairs.items():
            self._metrics.count("drift_repairs_total", component)
            if repair.verdict.is_news and component not in self._in_conflict:
                self._metrics.count("drift_conflicts_total", component)
        self._in_conflict = reconciler.conflicting
        for component in COMPONENTS:
            self._metrics.set("drift_conflict", component in self._in_conflict, component)
        if not done.errors and not reconciler.retries.due_at:
            self._metrics.set("last_sync_timestamp_seconds", time.time())
            self._board.synced()
            if calls.events and calls.first is not None:
                self._metrics.observe("event_to_applied_seconds", time.monotonic() - calls.first)


def log_pass(done: NodePass, before: Desired | None, names: NameChanges) -> None:
    """Log the decisions that changed since `before`, what was done and repaired, and what failed.

    `names` are those on hostnames (`changed_names`).
    """
    log_decisions(done.desired, before, names)
    for component, repair in done.repairs.items():
        say(logging.WARNING, "Repaired drift", {"component": component, "found": repair.found})
        if repair.verdict.is_news:
            fields: Fields = {"component": component, "reason": str(repair.verdict)}
            say(logging.ERROR, "Another program keeps reverting a component", fields)
    log_lines(
        logging.INFO,
        (
            ("Applied a change", {"component": change.component, "change": line})
            for change in done.changes
            for line in change.text.splitlines()
        ),
    )
    for component in sorted(done.recovered):
        say(logging.INFO, "Applied a component again", {"component": component})
    for component, reason in done.errors.items():
        fields = {"component": component, "reason": reason}
        say(logging.ERROR, "Could not apply a component; it is tried again", fields)
