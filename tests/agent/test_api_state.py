"""What log, metrics and health page say of the way to the API."""

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from nodeagent.agent.api_state import API, ApiState
from nodeagent.agent.metrics import AgentMetrics
from nodeagent.runtime.status import Status
from nodeagent.sources.kubernetes.cluster import ResourceState
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.reflector import Coverage
from tests.agent.scraping import read

ROUTES = "httproutes.gateway.networking.k8s.io"
SERVICES = ResourceState("services", synced=True, objects=3)
ABSENT = ResourceState(ROUTES, synced=False, optional=True, coverage=Coverage.NOT_SERVED)
REFUSED = ResourceState(ROUTES, synced=False, error="403", optional=True, coverage=Coverage.REFUSED)


class Told:
    """What was reported after each of some moments."""

    def __init__(self, *moments: Sequence[ResourceState]) -> None:
        metrics, self.board = AgentMetrics(), Status([API])
        api = ApiState(cast("Connection", SimpleNamespace(bytes_read=4096)), metrics, self.board)
        for states in moments:
            api.update(states)
        self.found = read(metrics.exposition())

    @property
    def api(self) -> str:
        """The health page's line."""
        return self.board.components[API].text(0.0)

    def coverage(self, resource: str) -> set[str]:
        """The states that a resource is in, by the metrics."""
        return {
            str(state)
            for state in Coverage
            if self.found.value("nodeagent_resource_coverage", resource=resource, state=str(state))
        }


def test_watches_and_bytes_are_counted_from_the_last_time_on() -> None:
    told = Told(
        [ResourceState("services", synced=True, objects=3, restarts=2, relists=1)],
        [ResourceState("services", synced=True, objects=4, restarts=5, relists=3)],
    )
    assert told.found.value("nodeagent_watch_restarts_total", resource="services") == 5
    assert told.found.value("nodeagent_relists_total", resource="services") == 3
    assert told.found.value("nodeagent_objects", resource="services") == 4
    assert told.found.value("nodeagent_api_read_bytes_total") == 4096


@pytest.mark.parametrize("optional", [ABSENT, REFUSED])
def test_what_the_agent_does_its_work_without_is_no_error(optional: ResourceState) -> None:
    """It is reported as what it is."""
    told = Told([SERVICES, optional])
    assert told.api == "ok"
    assert told.found.value("nodeagent_api_up") == 1
    assert told.coverage(ROUTES) == {str(optional.coverage)}
    assert told.coverage("services") == {"watched"}


def test_a_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """And again when it is back."""
    caplog.set_level(logging.INFO, "nodeagent")
    Told([REFUSED], [REFUSED], [REFUSED])
    assert [record.message for record in caplog.records] == [
        "Could not read a resource because RBAC denied it; what was known of it stays"
    ]
    caplog.clear()
    Told([ABSENT], [ABSENT])
    assert caplog.records == []
    watched = ResourceState(ROUTES, synced=True, optional=True)
    Told([REFUSED], [watched], [REFUSED])
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2


def test_an_optional_kind_that_fails_is_an_error_like_any_other() -> None:
    """A conversion webhook that is away, say: its names are not what they should be."""
    failing = ResourceState(ROUTES, synced=True, error="500: no webhook", optional=True)
    told = Told([SERVICES, failing])
    assert "500: no webhook" in told.api
    assert told.found.value("nodeagent_api_up") == 0


def test_a_kind_that_is_still_asked_for_is_waited_for() -> None:
    """Neither good nor bad."""
    pending = ResourceState(ROUTES, synced=False, optional=True, coverage=Coverage.PENDING)
    assert Told([SERVICES, pending]).api == "not yet"
