import time
from dataclasses import replace

import pytest

from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ApiRequest
from nodeagent.sources.kubernetes.listing import WatchEvent, read_event
from nodeagent.sources.kubernetes.reflector import Timing
from nodeagent.sources.kubernetes.resources import Resource
from tests.apiserver import ApiServer, Ending, faults, objects
from tests.cases import cases_of

from .watching import NODE, QUICK, Watched, until, watching

INGRESSES = "*/ingresses"


def renamed(host: str) -> dict[str, object]:
    return {"spec": {"tls": None, "rules": [{"host": host}]}}


def hosts(watched: Watched) -> dict[str, tuple[str, ...]]:
    return {found.ref.name: found.hosts for found in watched.snapshot().ingresses}


def test_objects_added_changed_and_deleted(api: ApiServer, connection: Connection) -> None:
    api.store.create(objects.ingress("a", hosts=["a.example"]))
    with watching(api, connection) as watched:
        assert hosts(watched) == {"a": ("a.example",)}
        node = watched.snapshot().node
        assert node is not None
        assert node.name == NODE
        api.store.create(objects.ingress("b", hosts=["b.example"]))
        api.store.patch("ingresses", "a", "default", renamed("new.example"))
        until(
            lambda: hosts(watched) == {"a": ("new.example",), "b": ("b.example",)}, "both changes to be seen"
        )
        api.store.delete("ingresses", "a", "default")
        watched.until_ingresses("b")
        lb = objects.service("lb", kind="LoadBalancer", addresses=["192.0.2.1"])
        api.store.create(lb)
        until(lambda: watched.services() == ["lb"], "the Service")
        api.store.apply(objects.service("lb"))
        until(lambda: watched.services() == [], "a Service that is no LoadBalancer any more to go")
        assert watched.state().relists == 0


def test_a_node_that_does_not_exist_is_none(api: ApiServer, connection: Connection) -> None:
    api.store.delete("nodes", NODE)
    with watching(api, connection) as watched:
        until(lambda: watched.snapshot() == Snapshot(), "an empty cluster")
        api.store.create(objects.node(NODE))
        until(lambda: watched.snapshot().node is not None, "the Node")


def test_what_means_nothing_causes_no_pass(api: ApiServer, connection: Connection) -> None:
    api.store.create(objects.ingress("a"))
    api.store.create(objects.node("other"))
    with watching(api, connection) as watched:
        # After its first answer discovery has nothing to report either.
        until(lambda: not watched.snapshot().pending, "all kinds to be known or absent")
        api.traffic.wait_for_requests("get", "/apis", len(api.traffic.seen("get", "/apis")) + 2)
        assert watched.snapshot() is watched.snapshot()
        before = watched.changes
        heartbeat = {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "now"}]}}
        api.store.patch("nodes", NODE, "", heartbeat)
        api.store.patch("nodes", "other", "", {"spec": {"podCIDRs": ["10.9.0.0/24"]}})
        api.store.patch(
            "ingresses", "a", "default", {"metadata": {"annotations": {"cert-manager.io/x": "y"}}}
        )
        # Events come in order: with these two, all before them has arrived.
        api.store.patch("nodes", NODE, "", {"spec": {"podCIDRs": ["10.8.0.0/24"]}})
        api.store.patch("ingresses", "a", "default", renamed("new.example"))
        until(lambda: watched.changes >= before + 2, "two changes")
        assert hosts(watched) == {"a": ("new.example",)}
        assert watched.changes == before + 2
        assert len(api.traffic.seen("watch", "/api/v1/nodes")) == 1  # its own
        api.faults.add(faults.ErrorLine(), path=INGRESSES)
        api.store.patch("ingresses", "a", "default", renamed("newer.example"))
        until(lambda: watched.changes == before + 3, "the pass for what a new list brings")


def test_410_asks_for_a_new_list(api: ApiServer, connection: Connection) -> None:
    """And what is not in it is gone, even if nothing is in it."""
    api.store.create_many([objects.ingress("a"), objects.service("lb", kind="LoadBalancer")])
    with watching(api, connection) as watched:
        api.stop_listening()
        api.store.delete("ingresses", "a", "default")
        api.store.compact()
        api.start_listening()
        watched.until_ingresses()
        assert watched.services() == ["lb"]
        assert watched.state().relists == 1
        until(lambda: watched.state().error is None, "the error to be gone")


def test_410_for_ever_makes_no_busy_loop(api: ApiServer, connection: Connection) -> None:
    api.faults.add(faults.Answer(410), path=INGRESSES, verbs={"watch"}, times=None)
    slow = Timing(backoff=(30.0, 30.0))
    with watching(api, connection, timing=slow, synced=False) as watched:
        watched.until_synced()
        until(lambda: watched.state().error is not None, "the error")
        tick = time.monotonic() + 0.3
        until(lambda: time.monotonic() > tick, "some time")
        assert len(api.traffic.seen("list", INGRESSES)) == 2


def test_the_first_410_lists_at_once(api: ApiServer, connection: Connection) -> None:
    """However long the wait after a failure has grown: the server answers."""
    patient = Timing(backoff=(30.0, 30.0))
    with watching(api, connection, timing=patient) as watched:
        api.faults.add(faults.ErrorLine(), path=INGRESSES)
        api.store.create(objects.ingress("a"))
        watched.until_ingresses("a")
        assert watched.state().relists == 1


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_cut_in_mid_line_resumes(api: ApiServer, connection: Connection, reset: bool) -> None:
    with watching(api, connection) as watched:
        cut = api.faults.add(faults.CutLine(reset=reset), path=INGRESSES, times=2)
        for name in "abc":
            api.store.create(objects.ingress(name))
        watched.until_ingresses("a", "b", "c")
        assert cut.used == 2
        assert watched.state().relists == 0


@pytest.mark.parametrize("how", list(Ending)[:3])
def test_streams_that_end_are_taken_up_again(api: ApiServer, connection: Connection, how: Ending) -> None:
    with watching(api, connection) as watched:
        until(lambda: not watched.snapshot().pending, "all kinds to be known or absent")
        before = watched.changes
        for name in "abc":
            restarts = watched.state().restarts
            api.end_watches(how)
            api.store.create(objects.ingress(name))
            until(lambda seen=restarts: watched.state().restarts > seen, "another watch")  # type: ignore[misc]
        watched.until_ingresses("a", "b", "c")
        assert {state.relists for state in (*watched.watched(), watched.state("discovery"))} == {0}
        assert watched.changes == before + 3, "a watch that begins again is none"


@pytest.mark.parametrize(
    "fault",
    [*map(faults.Answer, (500, 403)), faults.Answer(200, body=b""), faults.Disconnect(), faults.Hold()],
    ids=lambda fault: type(fault).__name__,
)
def test_where_no_watch_ever_brings_anything_lists_do(
    api: ApiServer, connection: Connection, fault: faults.RequestFault
) -> None:
    """A proxy that holds back streams, or a right that was forgotten."""
    api.faults.add(fault, path=INGRESSES, verbs={"watch"}, times=None)
    impatient = replace(QUICK, idle_timeout=0.1, unheard=0.2)
    with watching(api, connection, timing=impatient, synced=False) as watched:
        watched.until_synced()
        for name in "ab":
            api.store.create(objects.ingress(name))
            until(lambda seen=name: seen in watched.ingresses(), name)  # type: ignore[misc]
        api.store.delete("ingresses", "a", "default")
        watched.until_ingresses("b")


def test_retry_after_is_honored(api: ApiServer, connection: Connection) -> None:
    api.faults.add(faults.Answer(429, retry_after=1), path=INGRESSES, verbs={"list"})
    began = time.monotonic()
    with watching(api, connection):
        assert time.monotonic() - began > 1.0
        assert len(api.traffic.seen("list", INGRESSES)) == 2


def test_stopping_waits_for_no_slow_list_and_ends_all_watches(api: ApiServer, connection: Connection) -> None:
    hold = faults.Hold()
    api.faults.add(hold, path=INGRESSES)
    with watching(api, connection, synced=False) as watched:
        hold.wait_until_held()
        api.traffic.wait_for_watch("services")
        began = time.monotonic()
        watched.cluster.stop()
        assert time.monotonic() - began < 5.0
        until(lambda: not api.traffic.watches(), "the end of all watches")
        changes = watched.changes
        hold.release()
        assert watched.cluster.snapshot() is None
        assert watched.changes == changes


def test_a_silent_stream_is_given_up(api: ApiServer, connection: Connection) -> None:
    timing = Timing(idle_timeout=3.0, backoff=(0.01, 0.05))
    api.bookmark_interval = 0.1
    with watching(api, connection, timing=timing) as watched:
        silence = api.faults.add(faults.Silence(), path=INGRESSES)
        until(lambda: silence.used == 1, "the silence")
        api.store.create(objects.ingress("a"))
        watched.until_ingresses("a")
        assert watched.state().relists == 0
        # Bookmarks alone keep the others alive.
        assert watched.state("services").restarts == 0


@pytest.mark.parametrize(("line", "relists"), cases_of(__file__, "cases.yaml")["odd_lines"])
def test_an_unknown_event_is_ignored_and_a_line_that_is_none_asks_for_a_new_list(
    api: ApiServer, connection: Connection, line: str, relists: int
) -> None:
    with watching(api, connection) as watched:
        odd = api.faults.add(faults.Answer(200, body=f"{line}\n".encode()), path=INGRESSES, verbs={"watch"})
        api.end_watches()
        until(lambda: (odd.used, watched.state().relists) == (1, relists), "the line, and its consequence")
        api.store.create(objects.ingress("b"))
        watched.until_ingresses("b")
        assert watched.state().relists == relists


def test_bookmarks_spare_the_list_after_compaction(
    api: ApiServer, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.bookmark_interval = 0.05
    versions = [0]

    def noting(line: bytes, resource: Resource, request: ApiRequest) -> WatchEvent:
        event = read_event(line, resource, request)
        versions.append(event[0] if resource.name == "ingresses" else 0)
        return event

    monkeypatch.setattr("nodeagent.sources.kubernetes.reflector.read_event", noting)
    with watching(api, connection) as watched:
        api.store.create_many(objects.config_map(f"unrelated-{number}") for number in range(10))
        revision = api.store.revision
        until(lambda: max(versions) >= revision, "a bookmark made after those writes")
        api.store.compact()
        api.end_watches(Ending.DROP)
        api.traffic.wait_for_watch("ingresses")
        api.store.create(objects.ingress("a"))
        watched.until_ingresses("a")
        assert watched.state().relists == 0


def test_a_callback_that_fails_stops_nothing(api: ApiServer, connection: Connection) -> None:
    with watching(api, connection) as watched:
        calls: list[int] = []

        def fail() -> None:
            calls.append(1)
            if len(calls) == 1:
                raise ZeroDivisionError

        watched.cluster._on_change = fail  # noqa: SLF001
        api.store.create(objects.ingress("a"))
        until(lambda: bool(calls), "the failing call")
        api.store.create(objects.ingress("b"))
        watched.until_ingresses("a", "b")
