"""One bad answer is not an answer: what is known of a kind while an API server starts, fails or is away."""

import time
from dataclasses import replace
from itertools import chain

import pytest

from nodeagent.backoff import Backoff
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ForbiddenError, NotFoundError, NotJsonError, UnreachableError
from nodeagent.sources.kubernetes.fail_static import Answers, KindState, Lasting, state_of
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.reflector import Timing
from nodeagent.sources.kubernetes.resources import watched as rows
from nodeagent.sources.kubernetes.single_requests import read_cluster
from tests.apiserver import GATEWAY_API, ApiServer, custom, faults, objects
from tests.cases import cases_of

from .watching import NODE, QUICK, Watched, until, watching

GROUP = "gateway.networking.k8s.io"
ROUTES = f"httproutes.{GROUP}"
OPENSHIFT = custom("route.openshift.io", "v1", "Route")
CASES = cases_of(__file__, "cases.yaml")
LASTING = Lasting()
STEADY = replace(QUICK, lasting=LASTING)
"""As fast as the others, but with an agent's own patience about denial and absence."""


Row = tuple[str, int, int, int]
_ERRORS: dict[str, Exception | None] = {"none": None, "away": UnreachableError("no answer")}
_ERRORS |= {"denied": ForbiddenError("403"), "missing": NotFoundError("404")}


def answers(rows: list[Row] | None) -> Answers | None:
    """Each so often, spread over a time from one second to another."""
    if rows is None:
        return None
    found = Answers()
    for error, times, begin, end in rows:
        for number in range(times):
            found = found.then(_ERRORS[error], begin + number * (end - begin) / max(1, times - 1))
    return found


@pytest.mark.parametrize(("collection", "discovery", "fresh", "later"), CASES["known"])
def test_what_is_known_of_a_kind(
    collection: list[Row] | None, discovery: list[Row] | None, fresh: str, later: str
) -> None:
    for known, expected in ((False, fresh), (True, later)):
        assert state_of(answers(collection), answers(discovery), known=known) is KindState[expected]


@pytest.fixture
def full(api: ApiServer) -> ApiServer:
    api.store.serve(*GATEWAY_API, *OPENSHIFT)
    api.store.create_many([objects.http_route("a"), objects.ingress("i"), *CASES["full"]])
    return api


def hostnames(watched: Watched) -> set[str]:
    found = watched.snapshot()
    names = [*(one.hostnames for one in found.routes), *(one.hosts for one in found.controller_routes)]
    return set(chain(*names))


BOTH = {"www.example.com", "r.example"}


def test_a_server_that_denies_everything_at_first_denies_nothing(
    full: ApiServer, connection: Connection
) -> None:
    """Until its caches of roles are read."""
    armed = [
        full.faults.add(faults.Answer(403), path=path, times=None)
        for path in ("*/httproutes", "*/servicecidrs", "*/endpointslices", f"/apis/{GROUP}/v1", "/apis")
    ]
    with watching(full, connection, timing=STEADY, synced=False) as watched:
        until(lambda: watched.state("discovery").error is not None, "the denial")
        until(lambda: watched.state("api-server-endpoints").error is not None, "the denial")
        until(lambda: all(one.used > 5 for one in (armed[2], armed[4])), "more refusals than make a denial")
        assert watched.cluster.snapshot() is None, "nothing says yet which addresses are protected"
        for one in armed:
            full.faults.remove(one)
        watched.until_synced()
        until(lambda: hostnames(watched) == BOTH, "all hostnames")
        assert [one.name for one in watched.snapshot().service_ranges] == ["kubernetes"]
        assert watched.snapshot().not_covered == ()


@pytest.mark.parametrize("plural", ["servicecidrs", "endpointslices", "httproutes"])
def test_a_running_agent_loses_nothing_by_a_denial(
    full: ApiServer, connection: Connection, plural: str
) -> None:
    with watching(full, connection, timing=STEADY) as watched:
        until(lambda: hostnames(watched) == BOTH, "all lists")
        before = watched.snapshot()
        denial = full.faults.add(faults.Answer(403), path=f"*/{plural}", times=3)
        full.end_watches()
        until(lambda: denial.used == 3, "the denials")
        now = watched.snapshot()
        assert now.service_ranges == before.service_ranges
        assert (now.routes, now.api_servers, now.not_covered) == (before.routes, before.api_servers, ())
        full.store.create(objects.http_route("b", hostnames=["b.example"]))
        until(lambda: hostnames(watched) == {*BOTH, "b.example"}, "a change after it")


def test_a_group_that_fails_hides_no_other(full: ApiServer, connection: Connection) -> None:
    """An aggregated API that is down: its kinds are pending, the others are served."""
    down = full.faults.add(faults.Answer(503), path="/apis/route.openshift.io/v1", times=None)
    impatient = replace(STEADY, optional_wait=0.2)
    with watching(full, connection, timing=impatient, synced=False) as watched:
        watched.until_synced()
        until(lambda: hostnames(watched) == {"www.example.com"}, "the other group's hostnames")
        assert "503" in watched.snapshot().pending["routes.route.openshift.io"]
        assert ROUTES not in watched.snapshot().pending
        once = read_cluster(connection, NODE)
        assert {name for route in once.routes for name in route.hostnames} == {"www.example.com"}
        assert [*once.pending] == ["routes.route.openshift.io"]
        full.faults.remove(down)
        until(lambda: hostnames(watched) == BOTH, "those of the group that was down")
        full.faults.add(faults.Answer(503), path="/apis/route.openshift.io/v1", times=None)
        until(lambda: watched.state("discovery").error is not None, "it to be down again")
        assert hostnames(watched) == BOTH


def test_a_list_of_groups_without_those_of_definitions_is_not_believed_at_once(
    full: ApiServer, connection: Connection
) -> None:
    empty = b'{"kind":"APIGroupList","apiVersion":"v1","groups":[]}'
    full.faults.add(faults.Answer(200, body=empty), path="/apis", times=3)
    with watching(full, connection, timing=STEADY, synced=False) as watched:
        until(lambda: watched.state("discovery").synced, "the answer")
        assert watched.state(ROUTES).state is KindState.PENDING
        until(lambda: watched.cluster.snapshot() is not None and hostnames(watched) == BOTH, "all hostnames")


def test_how_long_answers_are_awaited_and_believed() -> None:
    """A typing error would be a load on API servers, or changes that come too late."""
    assert Timing() == Timing(
        idle_timeout=150.0,
        shortest_watch=1.0,
        unheard=120.0,
        backoff=(0.5, 30.0),
        refused=(240.0, 360.0),
        discovery=(60.0, 90.0),
        optional_wait=10.0,
        lasting=Lasting(denials=5, denied=60.0, absent=5.0),
    )


def test_kinds_that_are_really_missing_delay_nothing(api: ApiServer, connection: Connection) -> None:
    began = time.monotonic()
    with watching(api, connection, timing=Timing(), synced=False) as watched:
        watched.until_synced()
        assert time.monotonic() - began < Timing().optional_wait / 2
        assert watched.snapshot().pending.keys() >= {ROUTES}


BOOKMARK = b'{"type":"BOOKMARK","object":{"kind":"Ingress","metadata":{"resourceVersion":"1"}}}\n'
ERROR = b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":%d}}\n'


@pytest.mark.parametrize("end", [ERROR % 410, ERROR % 429, ERROR % 500, b'{"type":', b""])
def test_a_watch_that_brings_one_line_and_ends_makes_no_busy_loop(
    api: ApiServer, connection: Connection, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    class Noted(Backoff):
        def next(self, retry_after: float | None = None) -> float:
            waits.append(super().next(retry_after))
            return waits[-1]

    monkeypatch.setattr("nodeagent.sources.kubernetes.reflector.Backoff", Noted)
    api.faults.add(faults.Answer(200, body=BOOKMARK + end), path="*/ingresses", verbs={"watch"}, times=None)
    with watching(api, connection, timing=replace(QUICK, backoff=(0.02, 30.0)), synced=False):
        api.traffic.wait_for_requests("watch", "*/ingresses", 8)
    assert max(waits) > 0.3


@pytest.mark.parametrize("refused", [True, False])
def test_an_outage_of_whatever_kind_is_followed_by_no_list(
    api: ApiServer, connection: Connection, refused: bool
) -> None:
    with watching(api, connection) as watched:
        if refused:
            api.stop_listening()
        else:
            away = api.faults.add(faults.Disconnect(), times=None)
            api.end_watches()
            until(lambda: away.used > 100, "many failures")
        until(lambda: all(one.error for one in watched.watched()), "the failures")
        api.store.create(objects.ingress("a"))
        api.faults.clear()
        if refused:
            api.start_listening()
        watched.until_ingresses("a")
        assert {state.relists for state in watched.watched()} == {0}


def test_a_continue_token_that_repeats_is_an_error(api: ApiServer, connection: Connection) -> None:
    body = b'{"kind":"IngressList","metadata":{"resourceVersion":"7","continue":"x"},"items":[]}'
    endless = api.faults.add(faults.Answer(200, body=body), path="*/ingresses", times=None)
    row = next(row for row in rows(NODE) if row.name == "ingresses")
    with pytest.raises(NotJsonError, match="repeats an earlier `continue` token"):
        read_list(connection, row)
    assert endless.used <= 6


def test_without_hostnames_nothing_that_claims_them_is_watched(
    full: ApiServer, connection: Connection
) -> None:
    """Until they are wanted, and not after that."""
    watched = Watched(full, connection, timing=QUICK)
    watched.cluster.want_hostnames(wanted=False)
    watched.cluster.start()
    try:
        watched.until_synced()
        until(lambda: watched.state("servicecidrs.networking.k8s.io").synced, "the Service ranges")
        assert {state.name for state in watched.cluster.states() if state.synced} == {
            "services",
            "node",
            "api-server-endpoints",
            "discovery",
            "servicecidrs.networking.k8s.io",
        }
        assert full.traffic.seen("*", "*/ingress*") == full.traffic.seen("*", f"/apis/{GROUP}*") == []
        assert watched.snapshot().pending == {}
        watched.cluster.want_hostnames(wanted=True)
        until(lambda: watched.cluster.snapshot() is not None and hostnames(watched) == BOTH, "all hostnames")
        watched.cluster.want_hostnames(wanted=False)
        until(lambda: hostnames(watched) == set(), "none")
        until(lambda: not full.traffic.watches("httproutes"), "the end of the watches")
    finally:
        watched.cluster.stop()


def test_an_outage_makes_nothing_pending(api: ApiServer, connection: Connection) -> None:
    """What the server does not have, it has not lost: passes go on as before."""
    with watching(api, connection) as watched:
        until(lambda: not watched.snapshot().pending, "what is missing to be believed")
        away = api.faults.add(faults.Disconnect(), times=None)
        api.end_watches()
        until(lambda: watched.state("discovery").error is not None, "the outage")
        until(lambda: away.used > 100, "many failures")
        assert watched.state(ROUTES).state is KindState.ABSENT
        assert watched.snapshot().pending == {}
