"""Reports passes and watches in the log, the status, the metrics and Events; one line per change."""

import logging
import time
from collections.abc import Mapping, Sequence

from nodeagent.agent.convergence import ALL, NodePass
from nodeagent.agent.metrics import AgentMetrics
from nodeagent.agent.reconciler import Reconciler
from nodeagent.components.component import COMPONENTS
from nodeagent.errors import ApplyError
from nodeagent.runtime.decision_log import DecisionLog, Fields, say
from nodeagent.runtime.event_recorder import EventRecorder, pending_events
from nodeagent.sources.kubernetes.cluster import ResourceState
from nodeagent.sources.kubernetes.reflector import Coverage

_MOST_LINES = 100
"""Lines about changes in one pass: a thousand new rules should not hide everything else."""

API, PLAN, DRIFT, RELAY_NOTES = "api", "plan", "drift", "relay-notes"
"""In the status, next to the components: the way to the API, the decision itself, drift that nobody would
notice, and what about the relay is unreadable or unexpected."""
PARTS = (API, PLAN, *sorted(COMPONENTS), DRIFT, RELAY_NOTES)


class Reporter:
    """Reports for one agent; the status of its metrics has PARTS."""

    def __init__(self, metrics: AgentMetrics, events: EventRecorder) -> None:
        self._metrics = metrics
        self._status = metrics.status
        self._events = events
        self._decisions = DecisionLog()
        self._problems: dict[str, Mapping[str, str]] = {}

    def start_again(self) -> None:
        """Report everything in the next pass: this agent has just become the node's writer."""
        self._decisions.start_again()

    def report_pass(self, done: NodePass, reconciler: Reconciler, event_at: float | None) -> None:
        """Report what the pass decided, did, repaired and could not do.

        `event_at` is when the first event came that it answers (monotonic seconds).
        """
        desired = done.desired
        self._decisions.log(desired)
        log_pass(done)
        self._status.desired = desired
        for event in pending_events(desired):
            self._events.record(event)
        self._status.report(PLAN, None)
        for component in ALL - done.left_alone:
            self._metrics.observe("apply_duration_seconds", done.seconds.get(component, 0.0), component)
            if component in done.errors:
                self._metrics.count("apply_failures_total", component)
            self._status.report(component, done.errors.get(component))
        for component, repair in done.repairs.items():
            self._metrics.count("drift_repairs_total", component)
            if repair.delay and component not in self._status.conflicts:
                self._metrics.count("drift_conflicts_total", component)
        self._status.conflicts = reconciler.left_alone.conflicting()
        if not done.errors and not reconciler.left_alone.failing and not done.left_alone:
            self._status.synced()
            if event_at is not None:
                self._metrics.observe("event_to_applied_seconds", time.monotonic() - event_at)
        self.report_watches(reconciler)

    def report_watches(self, reconciler: Reconciler | None) -> None:
        """Report which components are not watched, and what is unexpected of the relay; None on standby."""
        unwatched: dict[str, str] = {}
        notes: dict[str, str] = {}
        if reconciler is not None:
            unwatched = {name: error for name in COMPONENTS if (error := reconciler.actual[name].error)}
            try:
                notes = {note: note for note in reconciler.actual.relay.state().notes}
            except ApplyError:  # an error of the pass
                notes = {}
        self._log_problems(
            "Could not watch a component; it is read every ten seconds",
            "Watched a component again",
            unwatched,
            "component",
        )
        self._log_problems("Found the relay in an unexpected state", "", notes)
        drift = [f"{name} is not watched: {why}" for name, why in sorted(unwatched.items())]
        self._status.report(DRIFT, "; ".join(drift) or None)
        self._status.report(RELAY_NOTES, "; ".join(notes) or None)

    def report_api(self, states: Sequence[ResourceState]) -> None:
        """Report what can't be read from the API server; the loop calls it now and then."""
        failing = {one.name: one.error for one in states if one.error and not _is_done_without(one)}
        self._log_problems(
            "Could not read from the API server; the node keeps what it has",
            "A resource of the API server fails no longer",
            {one.name: one.error for one in states if one.error},
            "resource",
        )
        if failing or all(state.synced or _is_done_without(state) for state in states):
            self._status.report(API, "; ".join(sorted({*failing.values()})) or None)

    def _log_problems(self, message: str, ended: str, now: Mapping[str, str], field: str = "reason") -> None:
        """Log each problem when it begins, and when it ends; `now` has the reason of each by its subject."""
        before, self._problems[message] = self._problems.get(message, {}), now
        for subject in sorted(now.keys() - before.keys()):
            say(logging.WARNING, message, {field: subject, "reason": now[subject]})
        for subject in sorted(before.keys() - now.keys()) if ended else ():
            say(logging.INFO, ended, {field: subject})


def _is_done_without(state: ResourceState) -> bool:
    """Whether it is an optional kind that this server does not have or denies."""
    return state.optional and state.coverage in {Coverage.REFUSED, Coverage.NOT_SERVED}


def log_pass(done: NodePass) -> None:
    """Log what was done and repaired, and what failed."""
    for component, repair in done.repairs.items():
        say(logging.WARNING, "Repaired drift", {"component": component, "found": repair.found})
        if repair.delay:
            fields: Fields = {"component": component, "reason": f"the next repair waits {repair.delay:.0f} s"}
            say(logging.ERROR, "Another program keeps reverting a component", fields)
    lines = [(change.component, line) for change in done.changes for line in change.text.splitlines()]
    for component, line in lines[:_MOST_LINES]:
        say(logging.INFO, "Applied a change", {"component": component, "change": line})
    if len(lines) > _MOST_LINES:
        say(logging.INFO, "Omitted more changes of this pass", {"count": len(lines) - _MOST_LINES})
    for component in sorted(done.recovered):
        say(logging.INFO, "Applied a component again", {"component": component})
    for component in sorted(done.errors.keys() - done.left_alone):
        fields = {"component": component, "reason": done.errors[component]}
        say(logging.ERROR, "Could not apply a component; it is tried again", fields)
