"""What the log, the metrics and the health page report about the watches: of the API, and of the node."""

import logging
import time
from collections.abc import Iterable, Sequence

from nodeagent.agent.drift.watcher import WatcherState
from nodeagent.components.component import COMPONENTS, ComponentName
from nodeagent.runtime.health import DRIFT, HealthBoard
from nodeagent.runtime.metric_set import Metrics
from nodeagent.sources.kubernetes.cluster import ResourceState
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.reflector import Coverage

_LOG = logging.getLogger("nodeagent")
API = "api"
_REPEAT_SECONDS = 300.0


class ApiState:
    """Reports changes once, and a lasting problem every five minutes; the board has a component `api`."""

    def __init__(self, connection: Connection, metrics: Metrics, board: HealthBoard) -> None:
        self._connection = connection
        self._metrics = metrics
        self._board = board
        self._bytes = 0
        self._seen: dict[str, ResourceState] = {}
        self._told: dict[str, float] = {}

    def update(self, states: Sequence[ResourceState]) -> None:
        """Take over the state of the watches; the loop calls it now and then."""
        for state in states:
            resource, before = state.name, self._seen.get(state.name)
            self._metrics.set("objects", state.objects, resource)
            for each in Coverage:
                self._metrics.set("resource_coverage", each is state.coverage, resource, each)
            restarts, relists = (before.restarts, before.relists) if before else (0, 0)
            self._metrics.count("watch_restarts_total", resource, by=state.restarts - restarts)
            self._metrics.count("relists_total", resource, by=state.relists - relists)
            self._tell(state, before)
            self._seen[state.name] = state
        read = self._connection.bytes_read
        self._metrics.count("api_read_bytes_total", by=read - self._bytes)
        self._bytes = read
        errors = sorted({state.error for state in states if state.error and not _is_done_without(state)})
        if errors:
            self._metrics.set("api_up", 0)
            self._board.component_failed(API, "; ".join(errors))
        elif all(state.synced or _is_done_without(state) for state in states):
            self._metrics.set("api_up", 1)
            self._board.component_ok(API)

    def _tell(self, state: ResourceState, before: ResourceState | None) -> None:
        fields = {"resource": state.name, "reason": state.error}
        if _is_done_without(state):
            if state.error and (before is None or before.coverage is not state.coverage):
                text = "Could not read a resource because RBAC denied it; what was known of it stays"
                _LOG.warning(text, extra={"fields": fields})
        elif state.error:
            now = time.monotonic()
            lasts = before is not None and before.error is not None
            if not lasts or now - self._told.get(state.name, 0.0) > _REPEAT_SECONDS:
                self._told[state.name] = now
                text = "Could not read from the API server; the node keeps what it has"
                _LOG.warning(text, extra={"fields": fields})
        elif before is not None and before.error:
            _LOG.info("Read from the API server again", extra={"fields": {"resource": state.name}})


def _is_done_without(state: ResourceState) -> bool:
    """Whether it is an optional kind that this server does not have or denies."""
    return state.optional and state.coverage in {Coverage.REFUSED, Coverage.NOT_SERVED}


class WatcherHealth:
    """Compares the watchers' state with their earlier state; the board has the component DRIFT."""

    def __init__(self, metrics: Metrics, board: HealthBoard) -> None:
        self._metrics = metrics
        self._board = board
        self._told: dict[ComponentName, str] = {}
        self._noted: tuple[str, ...] = ()

    def update(self, states: Iterable[WatcherState], relay_notes: Iterable[str] = ()) -> None:
        """Report what is new.

        Args:
            states: Of every watcher that should exist; none on standby.
            relay_notes: What could not be read from the relay, or is not as expected.
        """
        found: dict[ComponentName, str] = {state.name: state.error for state in states if not state.running}
        for component in COMPONENTS:
            self._metrics.set("drift_unnoticed", component in found, component)
            if component in found and self._told.get(component) != found[component]:
                _LOG.warning(
                    "Could not watch a component; its drift is noticed up to ten minutes late",
                    extra={"fields": {"component": component, "reason": found[component]}},
                )
            elif component in self._told and component not in found:
                _LOG.info("Resumed watching a component", extra={"fields": {"component": component}})
        self._told = found
        notes = [f"{component} is not watched: {why}" for component, why in sorted(found.items())]
        told = tuple(relay_notes)
        self._metrics.set("relay_notes", len(told))
        for note in set(told) - set(self._noted):
            _LOG.warning("Found the relay in an unexpected state", extra={"fields": {"reason": note}})
        self._noted = told
        notes += told
        if notes:
            self._board.component_failed(DRIFT, "; ".join(notes))
        else:
            self._board.component_ok(DRIFT)
