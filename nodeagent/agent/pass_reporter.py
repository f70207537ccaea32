"""Reports a pass in the log, the metrics, the status and Events; in the log, one line per change."""

import logging
import time
from collections.abc import Iterable, Mapping

from nodeagent.agent.convergence import ALL
from nodeagent.agent.metrics import AgentMetrics
from nodeagent.agent.reconciler import PassResult, Reconciler
from nodeagent.components.component import COMPONENTS, ComponentName
from nodeagent.errors import ApplyError
from nodeagent.model.desired import Decision, DecisionStatus
from nodeagent.runtime.decision_log import DecisionLog, Fields, say
from nodeagent.runtime.event_recorder import EventRecorder, pending_events
from nodeagent.runtime.status import DRIFT, DecisionCounts, Status

_MOST_LINES = 100
"""Lines about changes in one pass: a thousand new rules should not hide everything else."""

PLAN = "plan"
"""The name of the decision itself in the status, next to the components."""


class PassReporter:
    """Reports the passes of one agent; its status has each component, PLAN and DRIFT."""

    def __init__(self, metrics: AgentMetrics, status: Status, events: EventRecorder) -> None:
        self._metrics = metrics
        self._status = status
        self._events = events
        self._decisions = DecisionLog()
        self._unwatched: Mapping[ComponentName, str] = {}
        self._relay_notes: tuple[str, ...] = ()

    def start_again(self) -> None:
        """Report everything in the next pass: this agent has just become the node's writer."""
        self._decisions.start_again()

    def report(self, result: PassResult, reconciler: Reconciler, event_at: float | None) -> None:
        """Report what the pass decided, did, repaired and could not do.

        `event_at` is when the first event came that it answers (monotonic seconds).
        """
        done, desired = result.done, result.done.desired
        self._decisions.log(desired)
        log_pass(result)
        self._metrics.desired = desired
        for event in pending_events(desired):
            self._events.record(event)
        self._status.component_ok(PLAN)
        for component in ALL - done.left_alone:
            self._metrics.count("applies_total", component)
            self._metrics.observe("apply_duration_seconds", done.seconds.get(component, 0.0), component)
            if component in done.errors:
                self._metrics.count("apply_failures_total", component)
                self._status.component_failed(component, done.errors[component])
            else:
                self._status.component_ok(component)
        conflicting = reconciler.conflicting
        for component, repair in result.repairs.items():
            self._metrics.count("drift_repairs_total", component)
            if repair.status.is_news and component not in self._status.conflicts:
                self._metrics.count("drift_conflicts_total", component)
        for component in COMPONENTS:
            self._metrics.set("drift_conflict", component in conflicting, component)
        self._status.conflicts = conflicting
        self._status.load_balancers, self._status.names = (
            _counts(desired.load_balancers),
            _counts(desired.names),
        )
        if not done.errors and not reconciler.failing and not done.left_alone:
            self._metrics.set("last_sync_timestamp_seconds", time.time())
            self._status.synced()
            if event_at is not None:
                self._metrics.observe("event_to_applied_seconds", time.monotonic() - event_at)
        self.report_watches(reconciler)

    def report_watches(self, reconciler: Reconciler | None) -> None:
        """Report which components are not watched, and what is unexpected of the relay; None on standby."""
        unwatched: dict[ComponentName, str] = {}
        relay_notes: tuple[str, ...] = ()
        if reconciler is not None:
            unwatched = {name: error for name in COMPONENTS if (error := reconciler.actual[name].error)}
            try:
                relay_notes = reconciler.actual.relay.state().notes
            except ApplyError:  # an error of the pass
                relay_notes = ()
        for component in COMPONENTS:
            self._metrics.set("drift_unnoticed", component in unwatched, component)
            if unwatched.get(component, "") != self._unwatched.get(component, ""):
                if component in unwatched:
                    fields: Fields = {"component": component, "reason": unwatched[component]}
                    say(logging.WARNING, "Could not watch a component; it is read every ten seconds", fields)
                else:
                    say(logging.INFO, "Watched a component again", {"component": component})
        self._metrics.set("relay_notes", len(relay_notes))
        for note in {*relay_notes} - {*self._relay_notes}:
            say(logging.WARNING, "Found the relay in an unexpected state", {"reason": note})
        self._unwatched, self._relay_notes = unwatched, relay_notes
        notes = [f"{component} is not watched: {why}" for component, why in sorted(unwatched.items())]
        if notes or relay_notes:
            self._status.component_failed(DRIFT, "; ".join((*notes, *relay_notes)))
        else:
            self._status.component_ok(DRIFT)


def _counts(decisions: Iterable[Decision]) -> DecisionCounts:
    statuses = [decision.conclusion.status for decision in decisions]
    return DecisionCounts(**{status.value: statuses.count(status) for status in DecisionStatus})


def log_pass(result: PassResult) -> None:
    """Log what was done and repaired, and what failed."""
    done = result.done
    for component, repair in result.repairs.items():
        say(logging.WARNING, "Repaired drift", {"component": component, "found": repair.found})
        if repair.status.is_news:
            fields: Fields = {"component": component, "reason": str(repair.status)}
            say(logging.ERROR, "Another program keeps reverting a component", fields)
    lines = [(change.component, line) for change in done.changes for line in change.text.splitlines()]
    for component, line in lines[:_MOST_LINES]:
        say(logging.INFO, "Applied a change", {"component": component, "change": line})
    if len(lines) > _MOST_LINES:
        say(logging.INFO, "Omitted more changes of this pass", {"count": len(lines) - _MOST_LINES})
    for component in sorted(result.recovered):
        say(logging.INFO, "Applied a component again", {"component": component})
    for component in sorted(done.errors.keys() - done.left_alone):
        fields = {"component": component, "reason": done.errors[component]}
        say(logging.ERROR, "Could not apply a component; it is tried again", fields)
