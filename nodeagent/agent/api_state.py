"""What the log, the metrics and the status say about the watches of the API."""

import logging
import time
from collections.abc import Sequence

from nodeagent.runtime.metric_set import Metrics
from nodeagent.runtime.status import Status
from nodeagent.sources.kubernetes.cluster import ResourceState
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.reflector import Coverage

_LOG = logging.getLogger("nodeagent")
API = "api"
_REPEAT_SECONDS = 300.0


class ApiState:
    """Reports changes once, and a lasting problem every five minutes; the status has a component `api`."""

    def __init__(self, connection: Connection, metrics: Metrics, status: Status) -> None:
        self._connection = connection
        self._metrics = metrics
        self._status = status
        self._bytes = 0
        self._known: dict[str, ResourceState] = {}
        self._reported_at: dict[str, float] = {}

    def update(self, states: Sequence[ResourceState]) -> None:
        """Take over the state of the watches; the loop calls it now and then."""
        for state in states:
            resource, before = state.name, self._known.get(state.name)
            self._metrics.set("objects", state.objects, resource)
            for each in Coverage:
                self._metrics.set("resource_coverage", each is state.coverage, resource, each)
            restarts, relists = (before.restarts, before.relists) if before else (0, 0)
            self._metrics.count("watch_restarts_total", resource, by=state.restarts - restarts)
            self._metrics.count("relists_total", resource, by=state.relists - relists)
            self._report(state, before)
            self._known[state.name] = state
        read = self._connection.bytes_read
        self._metrics.count("api_read_bytes_total", by=read - self._bytes)
        self._bytes = read
        errors = sorted({state.error for state in states if state.error and not _is_done_without(state)})
        if errors:
            self._metrics.set("api_up", 0)
            self._status.component_failed(API, "; ".join(errors))
        elif all(state.synced or _is_done_without(state) for state in states):
            self._metrics.set("api_up", 1)
            self._status.component_ok(API)

    def _report(self, state: ResourceState, before: ResourceState | None) -> None:
        fields = {"resource": state.name, "reason": state.error}
        if _is_done_without(state):
            if state.error and (before is None or before.coverage is not state.coverage):
                text = "Could not read a resource because RBAC denied it; what was known of it stays"
                _LOG.warning(text, extra={"fields": fields})
        elif state.error:
            now = time.monotonic()
            lasts = before is not None and before.error is not None
            if not lasts or now - self._reported_at.get(state.name, 0.0) > _REPEAT_SECONDS:
                self._reported_at[state.name] = now
                text = "Could not read from the API server; the node keeps what it has"
                _LOG.warning(text, extra={"fields": fields})
        elif before is not None and before.error:
            _LOG.info("Read from the API server again", extra={"fields": {"resource": state.name}})


def _is_done_without(state: ResourceState) -> bool:
    """Whether it is an optional kind that this server does not have or denies."""
    return state.optional and state.coverage in {Coverage.REFUSED, Coverage.NOT_SERVED}
