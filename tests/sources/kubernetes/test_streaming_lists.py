"""Lists as the beginning of a watch (KEP-3157), and what becomes of them where a server can't."""

from dataclasses import replace

import pytest

from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.timing import Timing
from tests.apiserver import ApiServer, faults, objects
from tests.sources.kubernetes.watching import QUICK, until, watching

INGRESSES = "/apis/networking.k8s.io/v1/ingresses"
STREAMING = replace(QUICK, streaming=True)


def test_one_request_lists_and_watches(api: ApiServer, connection: Connection) -> None:
    api.store.create_many(objects.ingresses(3))
    with watching(api, connection, timing=STREAMING) as watched:
        watched.until_synced()
        assert api.traffic.seen("list") == []
        (request,) = api.traffic.seen("watch", INGRESSES)
        assert request.query["sendInitialEvents"] == "true"
        assert request.query["resourceVersionMatch"] == "NotOlderThan"
        assert "resourceVersion" not in request.query, "the newest there is, never an older one"
        changes = watched.changes
        api.store.create(objects.ingress("later"))
        until(lambda: "later" in watched.ingresses(), "an Ingress created later")
        assert watched.changes > changes
        assert len(api.traffic.seen("watch", INGRESSES)) == 1, "on the same stream"
        assert (watched.state().relists, watched.state().restarts) == (0, 0)


def test_what_was_deleted_in_the_meantime_is_removed_in_one_step(
    api: ApiServer, connection: Connection
) -> None:
    api.store.create_many([objects.ingress("stays"), objects.ingress("goes")])
    with watching(api, connection, timing=STREAMING) as watched:
        watched.until_ingresses("stays", "goes")
        seen: set[tuple[str, ...]] = set()
        watched.on_change = lambda: seen.add(tuple(watched.ingresses()))
        api.stop_listening()
        api.store.delete("ingresses", "goes", "default")
        api.store.create(objects.ingress("new"))
        api.compact()
        api.start_listening()
        watched.until_ingresses("stays", "new")
        assert api.traffic.seen("list") == []
        watched.until_settled()
        assert seen - {("goes", "stays")} == {("new", "stays")}, (
            "nothing was shown that never existed together"
        )
        assert watched.state().relists == 1


@pytest.mark.parametrize("refused", ["422", "400"])
def test_a_server_that_refuses_is_asked_for_lists(
    api: ApiServer, connection: Connection, refused: str
) -> None:
    api.store.create(objects.ingress("one"))
    api.options.watch_list = False
    if refused == "400":
        api.faults.add(faults.Answer(400), path=INGRESSES, verbs={"watch"}, times=1)
    with watching(api, connection, timing=STREAMING) as watched:
        watched.until_synced()
        watched.until_ingresses("one")
        assert len(api.traffic.seen("list", INGRESSES)) == 1
        assert not connection.streams_lists
        api.traffic.forget()
        api.compact()
        api.end_watches()
        api.store.create(objects.ingress("two"))
        watched.until_ingresses("one", "two")
        watched.until_watching()
        assert not [seen for seen in api.traffic.seen("watch") if "sendInitialEvents" in seen.query]


def test_a_stream_without_the_final_bookmark(api: ApiServer, connection: Connection) -> None:
    """A proxy between that drops parameters: what was sent so far is not taken for all."""
    api.store.create(objects.ingress("one"))
    api.options.initial_end = False
    api.options.bookmark_interval = 0.05
    patient = replace(STREAMING, list_timeout=0.2)
    with watching(api, connection, timing=patient) as watched:
        watched.until_ingresses("one")
        assert not connection.streams_lists


@pytest.mark.parametrize(
    "fault",
    [faults.CutLine(), faults.ErrorLine(500, "InternalError", "x"), faults.Silence()],
    ids=["cut", "error", "silence"],
)
def test_half_a_list_replaces_nothing(
    api: ApiServer, connection: Connection, fault: faults.LineFault
) -> None:
    api.store.create_many(objects.ingresses(4))
    timing: Timing = replace(STREAMING, idle_timeout=0.5)
    with watching(api, connection, timing=timing) as watched:
        watched.until_synced()
        before = watched.ingresses()
        shown: list[list[str]] = []
        watched.on_change = lambda: shown.append(watched.ingresses())
        api.stop_listening()
        api.compact()
        api.faults.add(fault, path=INGRESSES, times=1)
        api.store.create(objects.ingress("new"))
        api.start_listening()
        watched.until_ingresses(*before, "new")
        assert all(set(before) <= set(names) for names in shown)
        assert connection.streams_lists or isinstance(fault, faults.Silence)
