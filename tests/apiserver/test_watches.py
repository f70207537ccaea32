"""Watches: from a version on, bookmarks, compaction, selectors, endings."""

import http.client
import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from .objects import ingress, ingresses, node, service
from .resources import Object
from .server import ApiServer
from .traffic import OpenWatch, Traffic
from .watches import Ending
from .wire import WatchLines, request

INGRESSES = "/apis/networking.k8s.io/v1/ingresses"
SERVICES = "/api/v1/services"


def test_a_watch_tells_all_that_came_after_its_version_and_then_what_comes(api: ApiServer) -> None:
    api.store.create(ingress("old"))
    since = api.store.revision
    created = api.store.create(ingress("a"))
    api.store.delete("ingresses", "old", "default")
    with WatchLines(api, f"{INGRESSES}?resourceVersion={since}") as watch:
        added, deleted = watch.next(), watch.next()
        assert (added["type"], added["object"]) == ("ADDED", created)
        assert (deleted["type"], deleted["object"]["kind"]) == ("DELETED", "Ingress")
        assert deleted["object"]["metadata"]["resourceVersion"] == str(api.store.revision)
        changed = api.store.patch("ingresses", "a", "default", {"spec": {"tls": None}})
        modified = watch.next()
        assert (modified["type"], modified["object"]) == ("MODIFIED", changed)
        assert watch.response.headers["Transfer-Encoding"] == "chunked"


@pytest.mark.parametrize("version", ["", "0"])
def test_without_a_version_the_objects_that_stand_come_first(api: ApiServer, version: str) -> None:
    api.store.create_many([ingress("b"), ingress("a")])
    with WatchLines(api, f"{INGRESSES}?resourceVersion={version}") as watch:
        assert watch.seen(2) == [("ADDED", "a"), ("ADDED", "b")]
        api.wait_for_watch("ingresses")
        api.store.delete("ingresses", "a", "default")
        assert watch.seen(1) == [("DELETED", "a")]


def test_bookmarks_carry_a_version_and_nothing_else(api: ApiServer) -> None:
    api.options.bookmark_interval = 0.02
    with WatchLines(
        api, f"{INGRESSES}?resourceVersion={api.store.revision}&allowWatchBookmarks=true"
    ) as watch:
        # Writes to other resources move it on.
        api.store.create(service("a"))
        while (bookmark := watch.next())["object"]["metadata"]["resourceVersion"] != str(api.store.revision):
            pass
    metadata = {"resourceVersion": str(api.store.revision)}
    obj = {"kind": "Ingress", "apiVersion": "networking.k8s.io/v1", "metadata": metadata}
    assert bookmark == {"type": "BOOKMARK", "object": obj}


def test_no_bookmarks_for_clients_that_did_not_allow_them(api: ApiServer) -> None:
    api.options.bookmark_interval = 0.02
    with (
        WatchLines(api, f"{INGRESSES}?resourceVersion=0&allowWatchBookmarks=true") as noisy,
        WatchLines(api, f"{INGRESSES}?resourceVersion=0") as quiet,
    ):
        assert [noisy.next()["type"] for _ in range(3)] == ["BOOKMARK"] * 3
        api.store.create(ingress("a"))
        assert quiet.seen(1) == [("ADDED", "a")]


def test_initial_events_end_with_a_bookmark_that_says_so(api: ApiServer) -> None:
    api.options.bookmark_interval = None
    query = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    api.store.create(ingress("a"))
    with WatchLines(api, f"{INGRESSES}?{query}") as watch:
        assert watch.seen(1) == [("ADDED", "a")]
        metadata = watch.next()["object"]["metadata"]
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert metadata["resourceVersion"] == str(api.store.revision)
    assert request(api, "GET", f"{INGRESSES}?watch=1&sendInitialEvents=true")[0] == 400


def test_timeout_seconds_end_the_stream_cleanly(api: ApiServer) -> None:
    with WatchLines(api, f"{INGRESSES}?resourceVersion=0&timeoutSeconds=1") as watch, pytest.raises(EOFError):
        watch.next()
    api.traffic.wait_for_no_watch()


@pytest.mark.parametrize("in_stream", [True, False])
def test_a_version_from_before_the_compaction_is_expired(api: ApiServer, in_stream: bool) -> None:  # noqa: FBT001 - a parameter of the test
    api.options.expired_in_stream = in_stream
    old = api.store.revision
    api.store.create(ingress("a"))
    kept = api.compact()
    with WatchLines(api, f"{INGRESSES}?resourceVersion={old}") as watch:
        assert watch.response.status == (200 if in_stream else 410)
        answer = json.loads(watch.response.read())
    status = answer["object"] if in_stream else answer
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"] == f"too old resource version: {old} ({kept})"
    if in_stream:
        assert answer["type"] == "ERROR"
    # A client that was up to date still is.
    with WatchLines(api, f"{INGRESSES}?resourceVersion={kept}") as watch:
        api.store.create(ingress("b"))
        assert watch.seen(1) == [("ADDED", "b")]


def test_a_compaction_does_not_hurt_open_streams(api: ApiServer) -> None:
    with WatchLines(api, f"{INGRESSES}?resourceVersion={api.store.revision}") as watch:
        api.wait_for_watch("ingresses")
        api.store.create(ingress("a"))
        api.compact()
        api.store.create(ingress("b"))
        assert watch.seen(2) == [("ADDED", "a"), ("ADDED", "b")]


def test_an_object_that_stops_to_match_is_deleted_for_the_client(api: ApiServer) -> None:
    api.store.create_many([service("a", kind="LoadBalancer"), service("b")])
    since = api.store.revision
    api.store.patch("services", "a", "default", {"spec": {"type": "ClusterIP"}})
    left_at = api.store.revision
    api.store.patch("services", "b", "default", {"spec": {"type": "LoadBalancer"}})
    api.store.patch("services", "a", "default", {"metadata": {"labels": {"x": "y"}}})
    api.store.delete("services", "a", "default")
    api.store.delete("services", "b", "default")
    with WatchLines(
        api, f"{SERVICES}?resourceVersion={since}&fieldSelector=spec.type%3DLoadBalancer"
    ) as watch:
        left = watch.next()
        assert (left["type"], left["object"]["spec"]["type"]) == ("DELETED", "LoadBalancer")
        assert left["object"]["metadata"]["resourceVersion"] == str(left_at)
        assert watch.seen(2) == [("ADDED", "b"), ("DELETED", "b")]


def test_watches_of_one_namespace_one_label_one_object(api: ApiServer) -> None:
    since = api.store.revision
    api.store.create_many([ingress("a", "one"), ingress("b", "two"), node("n1"), node("n2")])
    with WatchLines(
        api, f"/apis/networking.k8s.io/v1/namespaces/two/ingresses?resourceVersion={since}"
    ) as watch:
        assert watch.seen(1) == [("ADDED", "b")]
    with WatchLines(api, f"/api/v1/nodes?resourceVersion={since}&fieldSelector=metadata.name%3Dn2") as watch:
        assert watch.seen(1) == [("ADDED", "n2")]
    label = "labelSelector=kubernetes.io%2Fhostname%3Dn2"
    with WatchLines(api, f"/api/v1/nodes?resourceVersion={since}&{label}") as watch:
        assert watch.seen(1) == [("ADDED", "n2")]
    with WatchLines(api, f"/api/v1/nodes/n2?resourceVersion={since}") as watch:
        assert watch.seen(1) == [("ADDED", "n2")]


def test_streams_are_counted_and_a_client_that_goes_away_is_noticed(api: ApiServer) -> None:
    api.options.bookmark_interval = None
    with WatchLines(api, f"{INGRESSES}?resourceVersion={api.store.revision}") as watch:
        api.wait_for_watch("ingresses")
        written = api.store.create_many(ingresses(100))
        assert len(watch.seen(100)) == 100
        api.traffic.wait_for_delivery("ingresses", written)
        assert [open_watch.resource for open_watch in api.traffic.watches()] == ["ingresses"]
    api.traffic.wait_for_no_watch()
    with pytest.raises(TimeoutError, match="open watch"):
        api.wait_for_watch("ingresses", timeout=0.01)


def test_all_streams_can_be_ended(api: ApiServer) -> None:
    with WatchLines(api, f"{INGRESSES}?resourceVersion=0") as watch:
        api.wait_for_watch("ingresses")
        api.end_watches()
        with pytest.raises(EOFError):
            watch.next()
    with WatchLines(api, f"{INGRESSES}?resourceVersion=0") as watch:
        api.wait_for_watch("ingresses")
        api.end_watches(Ending.DROP)
        with pytest.raises(http.client.IncompleteRead):
            watch.response.read()
    with WatchLines(api, f"{INGRESSES}?resourceVersion=0") as watch:
        api.wait_for_watch("ingresses")
        api.end_watches(Ending.RESET)
        with pytest.raises(ConnectionResetError):
            watch.response.read()


def rebuilt(watch: WatchLines, final: int) -> dict[str, Object]:
    """Play a stream's events until its bookmark says that everything up to `final` was told."""
    state: dict[str, Object] = {}
    while True:
        event = watch.next()
        metadata = event["object"]["metadata"]
        if event["type"] == "BOOKMARK":
            if int(metadata["resourceVersion"]) >= final:
                return state
        elif event["type"] == "DELETED":
            del state[metadata["name"]]
        else:
            assert (metadata["name"] in state) == (event["type"] == "MODIFIED"), event["type"]
            state[metadata["name"]] = event["object"]


def test_of_two_streams_alike_the_one_that_ended_is_forgotten() -> None:
    traffic = Traffic()
    first, second = (OpenWatch("services", SERVICES, {}) for _ in range(2))
    for stream in (first, second):
        traffic.opened(stream)
    traffic.closed(second)
    traffic.reached(first, 7)
    assert [stream.revision for stream in traffic.watches("services")] == [7]
    traffic.closed(first)
    assert traffic.watches() == []


@pytest.mark.parametrize("selector", ["", "&fieldSelector=spec.type%3DLoadBalancer"])
def test_streams_retell_what_many_writers_did(api: ApiServer, selector: str) -> None:
    api.options.bookmark_interval = 0.05

    def write(number: int) -> None:
        dice = random.Random(number)  # noqa: S311 - to play, not to hide
        for _ in range(200):
            name = f"s{number}-{dice.randrange(5)}"
            kind = dice.choice(["ClusterIP", "LoadBalancer"])
            if dice.random() < 0.3 and any(
                obj["metadata"]["name"] == name for obj in api.store.all("services")
            ):
                api.store.delete("services", name, "default")
            else:
                api.store.apply(service(name, kind=kind, annotations={"n": str(dice.random())}))

    query = f"resourceVersion={api.store.revision}&allowWatchBookmarks=true{selector}"
    with WatchLines(api, f"{SERVICES}?{query}") as early, ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
        with WatchLines(api, f"{SERVICES}?{query}") as late:
            states = [rebuilt(early, api.store.revision), rebuilt(late, api.store.revision)]
    _, listed = request(api, "GET", f"{SERVICES}?{selector}")
    versions = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed["items"]}
    for state in states:
        assert {name: obj["metadata"]["resourceVersion"] for name, obj in state.items()} == versions
