"""Reports passes and watches in the log, the status, the metrics and Events; one line per change."""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from nodeagent.agent.comparison import serving_relay
from nodeagent.agent.convergence import ALL, NodePass
from nodeagent.agent.reconciler import Reconciler
from nodeagent.components.component import COMPONENTS
from nodeagent.errors import ApplyError
from nodeagent.observe.event_recorder import EventRecorder, pending_events
from nodeagent.observe.metrics import CONFIG, AgentMetrics
from nodeagent.observe.transition_log import TransitionLog, say
from nodeagent.sources.kubernetes.cluster import ResourceState
from nodeagent.sources.kubernetes.fail_static import KindState

API, PLAN, DRIFT, RELAY_NOTES = "api", "plan", "drift", "relay-notes"
"""In the status, next to the components: the way to the API, a configuration that was rejected, the decision
itself, components whose drift is noticed late, and what about the relay is unreadable or unexpected."""
PARTS = (API, CONFIG, PLAN, *sorted(COMPONENTS), DRIFT, RELAY_NOTES)


class Reporter:
    """Reports for one agent; the status of its metrics has PARTS."""

    def __init__(self, metrics: AgentMetrics, events: EventRecorder) -> None:
        self._metrics = metrics
        self._status = metrics.status
        self._events = events
        self._log = TransitionLog()

    def start_again(self) -> None:
        """Log everything in the next pass."""
        self._log.start_again()

    def report_pass(self, done: NodePass, reconciler: Reconciler, event_at: float | None) -> None:
        """Report a pass, which answers events since `event_at` (monotonic seconds)."""
        metrics, status = self._metrics, self._status
        status.desired = done.desired
        status.report(PLAN, None)
        self._log.decisions(done.desired)
        self._events.record(pending_events(done.desired))
        self._log.problems(
            "Delayed the changes of a namespace's load balancers",
            dict.fromkeys(done.waiting, "each of them makes HAProxy reload, and they come too often"),
            "namespace",
        )
        for component, repair in done.repairs.items():
            metrics.drift_repairs.labels(component).inc()
            say(logging.WARNING, "Repaired drift", component=component, found=repair.found)
            if repair.delay:
                why = f"the next repair waits {repair.delay:.0f} s"
                message = "Another program keeps reverting a component"
                say(logging.ERROR, message, component=component, reason=why)
        self._log.lines(
            (f"/{component}", "Applied a change", {"component": component, "change": line})
            for component, change in done.changes
            for line in change.text.splitlines()
        )
        for component in sorted(ALL - done.left_alone):
            error = done.errors.get(component)
            status.report(component, error)
            metrics.apply_seconds.labels(component).observe(done.seconds.get(component, 0.0))
            if error is not None:
                metrics.apply_failures.labels(component).inc()
                message = "Could not apply a component; it is tried again"
                say(logging.ERROR, message, component=component, reason=error)
            elif component in done.recovered:
                say(logging.INFO, "Applied a component again", component=component)
        status.conflicts = reconciler.backoff.conflicting()
        if not done.errors and not reconciler.backoff.failing and not done.left_alone:
            status.synced()
            if event_at is not None:
                metrics.event_to_applied.observe(time.monotonic() - event_at)
        self.report_watches(reconciler)

    def report_clean_up(self, done: NodePass) -> None:
        """Log what was removed, and what could not be."""
        for component, change in done.changes:
            for line in change.text.splitlines():
                say(logging.INFO, "Cleaned up a component", component=component, change=line)
        for component, reason in done.errors.items():
            say(logging.ERROR, "Could not clean up a component", component=component, reason=reason)

    def report_watches(self, reconciler: Reconciler) -> None:
        """Report which components are not watched, which HAProxy serves, and what is unexpected of it."""
        unwatched: dict[str, str] = {
            name: error for name in COMPONENTS if (error := reconciler.actual[name].error)
        }
        notes: dict[str, str] = {}
        with suppress(ApplyError):  # an error of the pass
            notes = {note: note for note in reconciler.actual.relay.state().notes}
        self._status.relay = serving_relay(reconciler.actual)
        late = "Could not watch a component; it is read every ten seconds"
        self._log.problems(late, unwatched, "component", ended="Watched a component again")
        self._log.problems("Found the relay in an unexpected state", notes)
        drift = [f"{name} is not watched: {why}" for name, why in sorted(unwatched.items())]
        self._status.report(DRIFT, "; ".join(drift) or None)
        self._status.report(RELAY_NOTES, "; ".join(notes) or None)

    def report_api(self, states: Sequence[ResourceState]) -> None:
        """Report what can't be read from the API server; the loop calls it now and then."""
        self._log.problems(
            "Could not read from the API server; the node keeps what it has",
            {kind.name: kind.error for kind in states if kind.error},
            "resource",
            ended="A resource of the API server fails no longer",
        )
        # An optional kind that this server does not have, or denies, is done without.
        off = {KindState.DENIED, KindState.ABSENT}
        errors = {kind.error for kind in states if kind.error and not (kind.optional and kind.state in off)}
        if errors or all(kind.synced or kind.optional for kind in states):
            self._status.report(API, "; ".join(sorted(errors)) or None)
