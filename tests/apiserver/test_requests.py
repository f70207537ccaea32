"""One suite of requests for the simulated API server and for a real one: both give the same answers.

The real one is asked where `KUBE_APISERVER=` and `ETCD=` name the programs; docs/development.md says when
that was done last, and what is not imitated.
"""

import gzip
import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count
from urllib.parse import quote

import pytest

from tests.cases import cases_of

from . import objects
from .answers import APPLY
from .resources import Object
from .servers import Server
from .wire import WatchLines, exchange, request

CASES = cases_of(__file__, "cases.yaml")
_NUMBERS = count()
CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"


@dataclass(frozen=True)
class Place:
    """A namespace of the test's own; paths are those below it."""

    server: Server
    name: str

    def path(self, plural: str) -> str:
        """Return the path of a resource: its plural alone, or below its group."""
        group, _, below = plural.rpartition("/v1/")
        return f"/{f'apis/{group}' if group else 'api'}/v1/namespaces/{self.name}/{below}"

    def ask(self, method: str, plural: str, body: Object | None = None) -> tuple[int, Object]:
        return request(self.server.admin, method, self.path(plural), body)

    def create(self, plural: str, obj: Object) -> Object:
        status, answer = self.ask("POST", plural, obj)
        assert status == 201, answer
        return answer

    def names(self, plural: str, query: str = "") -> list[str]:
        return names(self.ask("GET", f"{plural}?{quote(query, '=&!')}")[1])

    def version(self, plural: str) -> str:
        found: str = self.ask("GET", plural)[1]["metadata"]["resourceVersion"]
        return found

    def watch(self, plural: str, query: str) -> WatchLines:
        return WatchLines(self.server.admin, f"{self.path(plural)}?{query}")


@pytest.fixture
def place(server: Server) -> Place:
    name = f"place-{next(_NUMBERS)}"
    assert request(server.admin, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    return Place(server, name)


def config_map(name: str, **data: str) -> Object:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data}


def service(name: str, kind: str = "ClusterIP", **labels: str) -> Object:
    """Build a Service without what the server chooses."""
    spec = {"type": kind, "ports": [{"port": 80}]}
    return {"kind": "Service", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}, "spec": spec}


def names(listed: Object) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


# Lists


def test_pages_are_one_snapshot(place: Place) -> None:
    for number in range(5):
        place.create("configmaps", config_map(f"c{number}"))
    seen: list[str] = []
    versions, token = set(), ""
    while token or not seen:
        _, page = place.ask("GET", f"configmaps?limit=2&continue={quote(token)}")
        seen += names(page)
        versions.add(page["metadata"]["resourceVersion"])
        # What happens between the pages is not in them.
        place.ask("DELETE", f"configmaps/{seen[-1]}")
        if not token:
            place.create("configmaps", config_map("z"))
        token = page["metadata"].get("continue", "")
    assert seen == [f"c{number}" for number in range(5)]
    assert len(versions) == 1


def test_what_the_storage_has_forgotten_is_expired(server: Server) -> None:
    """IngressClasses, whose lists the real server reads from its storage here."""
    for name in ("one", "three", "two"):
        made = {"metadata": {"name": name}, "spec": {"controller": "example.com/x"}}
        assert request(server.admin, "POST", CLASSES, made)[0] == 201
    _, page = request(server.admin, "GET", f"{CLASSES}?limit=1")
    assert request(server.admin, "DELETE", f"{CLASSES}/three")[0] == 200
    server.compact()
    token = page["metadata"]["continue"]
    status, refused = request(server.admin, "GET", f"{CLASSES}?limit=1&continue={token}")
    assert (status, refused["reason"], refused["code"]) == (410, "Expired", 410)
    assert refused["message"].startswith("The provided continue parameter is too old to display a consistent")
    for name in ("one", "two"):
        request(server.admin, "DELETE", f"{CLASSES}/{name}")


def test_items_of_built_in_types_do_not_state_their_type(place: Place) -> None:
    place.create("services", service("a"))
    _, listed = place.ask("GET", "services")
    assert (listed["kind"], listed["apiVersion"]) == ("ServiceList", "v1")
    assert "kind" not in listed["items"][0]
    assert place.ask("GET", "services/a")[1]["kind"] == "Service"


def test_selectors(place: Place) -> None:
    place.create("services", service("a", app="web", tier="front"))
    place.create("services", service("b", "LoadBalancer", app="db"))
    place.create("services", service("c"))
    for query, expected in CASES["selectors"]:
        assert place.names("services", query.format(place=place.name)) == expected, query


def test_large_lists_are_compressed_for_clients_that_ask(server: Server, place: Place) -> None:
    place.create("configmaps", config_map("a", ballast="x" * 200_000))
    packed = {"Accept-Encoding": "gzip"}
    _, headers, body = exchange(server.admin, "GET", place.path("configmaps"), headers=packed)
    assert headers["Content-Encoding"] == "gzip"
    assert names(json.loads(gzip.decompress(body))) == ["a"]
    assert "Content-Encoding" not in exchange(server.admin, "GET", place.path("configmaps"))[1]
    assert "Content-Encoding" not in exchange(server.admin, "GET", place.path("services"), headers=packed)[1]


# What does not make sense


@pytest.mark.parametrize(("asked", "refusal"), CASES["refusals"])
def test_refusals(server: Server, place: Place, asked: str, refusal: str) -> None:
    place.create("configmaps", config_map("held"))
    method, target = asked.format(place=place.name).split(" ")
    status, answer = request(server.admin, method, target, config_map("held") if method == "POST" else None)
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", status)
    found = f"{status} {answer.get('reason', '')}: {answer['message']}"
    assert fnmatchcase(found, f"{refusal}*".replace("[", "[[]")), found


@pytest.mark.parametrize(
    "path", ["/apis/wonders.example.com/v1/wonders", "/apis/wonders.example.com", "/nothing"]
)
def test_a_group_that_does_not_exist_is_answered_in_plain_text(server: Server, path: str) -> None:
    status, headers, body = exchange(server.admin, "GET", path)
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert body == b"404 page not found\n"


# Watches


def test_a_watch_tells_all_that_came_after_its_version_and_then_what_comes(place: Place) -> None:
    place.create("configmaps", config_map("old"))
    since = place.version("configmaps")
    made = place.create("configmaps", config_map("a"))
    place.ask("DELETE", "configmaps/old")
    at = place.version("configmaps")
    with place.watch("configmaps", f"resourceVersion={since}") as watch:
        assert watch.response.headers["Transfer-Encoding"] == "chunked"
        assert watch.response.headers["Content-Type"] == "application/json"
        added, deleted = watch.next(), watch.next()
        assert (added["type"], added["object"]) == ("ADDED", made)
        assert (deleted["type"], deleted["object"]["kind"]) == ("DELETED", "ConfigMap")
        assert deleted["object"]["metadata"]["resourceVersion"] == at
        _, changed = place.ask("PATCH", "configmaps/a", {"data": {"k": "v"}})
        modified = watch.next()
        assert (modified["type"], modified["object"]) == ("MODIFIED", changed)


@pytest.mark.parametrize("version", ["", "0"])
def test_without_a_version_the_objects_that_exist_come_first(place: Place, version: str) -> None:
    for name in "ba":
        place.create("configmaps", config_map(name))
    with place.watch("configmaps", f"resourceVersion={version}") as watch:
        assert sorted(watch.seen(2)) == [("ADDED", "a"), ("ADDED", "b")]
        place.ask("DELETE", "configmaps/a")
        assert watch.seen(1) == [("DELETED", "a")]


def test_timeout_seconds_end_the_stream_cleanly(place: Place) -> None:
    with place.watch("configmaps", "resourceVersion=0&timeoutSeconds=1") as watch, pytest.raises(EOFError):
        watch.next()


def test_a_version_that_the_watch_cache_never_had_is_expired(server: Server) -> None:
    with WatchLines(server.admin, "/api/v1/services?resourceVersion=2") as watch:
        event = watch.next()
        assert (watch.response.status, event["type"]) == (200, "ERROR")
        found = event["object"]
    assert (found["kind"], found["code"], found["reason"]) == ("Status", 410, "Expired")
    assert found["message"].startswith("too old resource version: 2 (")


def test_an_object_that_stops_to_match_is_deleted_for_the_client(place: Place) -> None:
    place.create("services", service("a", "LoadBalancer"))
    place.create("services", service("b"))
    since = place.version("services")
    _, left = place.ask("PATCH", "services/a", {"spec": {"type": "ClusterIP"}})
    place.ask("PATCH", "services/b", {"spec": {"type": "LoadBalancer"}})
    place.ask("PATCH", "services/a", {"metadata": {"labels": {"x": "y"}}})
    place.ask("DELETE", "services/a")
    place.ask("DELETE", "services/b")
    query = f"resourceVersion={since}&fieldSelector=spec.type%3DLoadBalancer"
    with place.watch("services", query) as watch:
        event = watch.next()
        assert (event["type"], event["object"]["spec"]["type"]) == ("DELETED", "LoadBalancer")
        assert event["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
        assert watch.seen(2) == [("ADDED", "b"), ("DELETED", "b")]


# Writes


def test_an_update_from_an_old_version_conflicts(place: Place) -> None:
    first = place.create("configmaps", config_map("state", key="1"))
    status, second = place.ask("PUT", "configmaps/state", first | {"data": {"key": "2"}})
    assert status == 200
    _, again = place.ask("PUT", "configmaps/state", second)
    assert again["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"], "it changes nothing"
    status, refused = place.ask("PUT", "configmaps/state", first | {"data": {"key": "3"}})
    assert (status, refused["reason"]) == (409, "Conflict")
    assert refused["message"] == (
        'Operation cannot be fulfilled on configmaps "state": the object has been modified; please apply '
        "your changes to the latest version and try again"
    )
    other = {"metadata": {"name": "state", "uid": "11111111-2222-3333-4444-555555555555"}}
    assert place.ask("PUT", "configmaps/state", other)[1]["reason"] == "Conflict"
    assert place.ask("GET", "configmaps/state")[1]["data"] == {"key": "2"}


def test_deletions(place: Place) -> None:
    place.create("configmaps", config_map("a"))
    _, deleted = place.ask("DELETE", "configmaps/a")
    assert (deleted["kind"], deleted["status"], deleted["details"]["name"]) == ("Status", "Success", "a")
    assert place.ask("GET", "configmaps/a")[0] == 404


def test_a_deletion_in_the_foreground_waits_for_the_garbage_collector(place: Place) -> None:
    path = "apps/v1/daemonsets"
    place.create(path, objects.daemon_set("a", place.name))
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
    for _ in range(2):
        status, marked = place.ask("DELETE", f"{path}/a", options)
        assert (status, marked["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
        assert "deletionTimestamp" in marked["metadata"]
    assert place.ask("PATCH", f"{path}/a", {"metadata": {"finalizers": None}})[0] == 200
    assert place.ask("GET", f"{path}/a")[0] == 404
    place.create(path, objects.daemon_set("b", place.name))
    assert place.ask("DELETE", f"{path}/b")[1]["kind"] == "Status"


def test_apply_creates_and_merges(server: Server, place: Place) -> None:
    path = f"{place.path('configmaps/a')}?fieldManager=helm&force=true"
    made, kind = config_map("a", k="1"), {"Content-Type": APPLY}
    assert request(server.admin, "PATCH", path, made, kind)[0] == 201
    made["metadata"]["labels"] = {"x": "y"}
    status, found = request(server.admin, "PATCH", path, made, kind)
    assert (status, found["metadata"]["labels"], found["data"]) == (200, {"x": "y"}, {"k": "1"})


# What exists


def test_groups_versions_and_resources_are_told(server: Server) -> None:
    def get(path: str) -> Object:
        return request(server.admin, "GET", path)[1]

    found = get("/apis")
    assert found["kind"] == "APIGroupList"
    groups = {group["name"]: [one["version"] for one in group["versions"]] for group in found["groups"]}
    assert (groups["networking.k8s.io"], groups["discovery.k8s.io"]) == (["v1"], ["v1"])
    assert "gateway.networking.k8s.io" not in groups
    found = get("/apis/networking.k8s.io/v1")
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "networking.k8s.io/v1")
    told = {each["name"]: (each["kind"], each["namespaced"], each["verbs"]) for each in found["resources"]}
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert told["ingresses"] == ("Ingress", True, verbs)
    assert told["ingressclasses"] == ("IngressClass", False, verbs)
    assert get("/api/v1")["groupVersion"] == "v1"
    assert get("/apis/apps")["preferredVersion"]["groupVersion"] == "apps/v1"
    assert get("/version")["gitVersion"].startswith("v1.")
