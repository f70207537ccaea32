"""One suite of requests for the simulated API server and for a real one: both give the same answers.

The real one is asked where `KUBE_APISERVER=` and `ETCD=` name the programs; docs/development.md says when
that was done last, and what is not imitated.
"""

import gzip
import json
from fnmatch import fnmatchcase
from itertools import count
from urllib.parse import quote

import pytest

from . import objects
from .resources import Object
from .servers import Server
from .wire import WatchLines, exchange, request

_NUMBERS = count()
APPLY = {"Content-Type": "application/apply-patch+yaml"}
CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"


@pytest.fixture
def place(server: Server) -> str:
    """Provide a namespace of the test's own; give its path."""
    name = f"place-{next(_NUMBERS)}"
    assert request(server.admin, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    return f"/api/v1/namespaces/{name}"


def grouped(place: str, group: str) -> str:
    """Give the path of the same namespace in a group's v1."""
    return place.replace("/api/v1", f"/apis/{group}/v1")


def created(server: Server, path: str, obj: Object) -> Object:
    """Create an object; give it as stored."""
    status, answer = request(server.admin, "POST", path, obj)
    assert status == 201, answer
    return answer


def config_map(name: str, **data: str) -> Object:
    """Build a ConfigMap."""
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data}


def service(name: str, kind: str = "ClusterIP", **labels: str) -> Object:
    """Build a Service without what the server chooses."""
    metadata: Object = {"name": name, "labels": labels}
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {"type": kind, "ports": [{"port": 80}]},
    }


def names(listed: Object) -> list[str]:
    """Give the names in a list."""
    return [item["metadata"]["name"] for item in listed["items"]]


def version(server: Server, path: str) -> str:
    """Give a collection's resourceVersion."""
    found: str = request(server.admin, "GET", path)[1]["metadata"]["resourceVersion"]
    return found


# Lists


def test_pages_are_one_snapshot(server: Server, place: str) -> None:
    path = f"{place}/configmaps"
    for number in range(5):
        created(server, path, config_map(f"c{number}"))
    seen: list[str] = []
    versions, remaining, token = set(), [], ""
    while True:
        _, page = request(server.admin, "GET", f"{path}?limit=2&continue={quote(token)}")
        seen += names(page)
        versions.add(page["metadata"]["resourceVersion"])
        remaining.append(page["metadata"].get("remainingItemCount"))
        # What happens between the pages is not in them.
        request(server.admin, "DELETE", f"{path}/{seen[-1]}")
        token = page["metadata"].get("continue", "")
        if not token:
            break
        if len(seen) == 2:
            created(server, path, config_map("z"))
    assert seen == [f"c{number}" for number in range(5)]
    assert len(versions) == 1
    assert remaining == [3, 1, None]


def test_what_the_storage_has_forgotten_is_expired(server: Server) -> None:
    """IngressClasses, whose lists the real server reads from its storage here."""
    body = {"spec": {"controller": "example.com/x"}}
    for name in ("one", "three", "two"):
        created(server, CLASSES, {"metadata": {"name": name}, **body})
    _, page = request(server.admin, "GET", f"{CLASSES}?limit=1")
    assert request(server.admin, "DELETE", f"{CLASSES}/three")[0] == 200
    server.compact()
    token = page["metadata"]["continue"]
    status, refused = request(server.admin, "GET", f"{CLASSES}?limit=1&continue={token}")
    assert (status, refused["reason"], refused["code"]) == (410, "Expired", 410)
    assert refused["message"].startswith("The provided continue parameter is too old to display a consistent")
    for name in ("one", "two"):
        request(server.admin, "DELETE", f"{CLASSES}/{name}")


def test_items_of_built_in_types_do_not_state_their_type(server: Server, place: str) -> None:
    created(server, f"{place}/services", service("a"))
    _, listed = request(server.admin, "GET", f"{place}/services")
    assert (listed["kind"], listed["apiVersion"]) == ("ServiceList", "v1")
    assert "kind" not in listed["items"][0]
    assert request(server.admin, "GET", f"{place}/services/a")[1]["kind"] == "Service"


def test_selectors(server: Server, place: str) -> None:
    created(server, f"{place}/services", service("a", app="web", tier="front"))
    created(server, f"{place}/services", service("b", "LoadBalancer", app="db"))
    created(server, f"{place}/services", service("c"))
    for query, expected in (
        ("fieldSelector=spec.type=LoadBalancer", ["b"]),
        ("fieldSelector=spec.type!=LoadBalancer", ["a", "c"]),
        ("fieldSelector=metadata.name=a,spec.type=ClusterIP", ["a"]),
        (f"fieldSelector=metadata.namespace={place.rsplit('/', maxsplit=1)[-1]},metadata.name=c", ["c"]),
        ("labelSelector=app=web", ["a"]),
        ("labelSelector=app=web,tier=front", ["a"]),
    ):
        found = request(server.admin, "GET", f"{place}/services?{quote(query, '=&!')}")[1]
        assert names(found) == expected, query


def test_large_lists_are_compressed_for_clients_that_ask(server: Server, place: str) -> None:
    created(server, f"{place}/configmaps", config_map("a", ballast="x" * 200_000))
    packed = {"Accept-Encoding": "gzip"}
    _, headers, body = exchange(server.admin, "GET", f"{place}/configmaps", headers=packed)
    assert headers["Content-Encoding"] == "gzip"
    assert names(json.loads(gzip.decompress(body))) == ["a"]
    assert "Content-Encoding" not in exchange(server.admin, "GET", f"{place}/configmaps")[1]
    assert "Content-Encoding" not in exchange(server.admin, "GET", f"{place}/services", headers=packed)[1]


# What does not make sense


NO_RESOURCE = "404 NotFound: the server could not find the requested resource"
NO_FIELD = '"spec.type" is not a known field selector: only "metadata.name", "metadata.namespace"'

REFUSALS: list[tuple[str, Object | None, str]] = [
    ("GET /api/v1/wonders", None, NO_RESOURCE),
    ("GET {place}/configmaps/x/status", None, NO_RESOURCE),
    ("GET {place}/configmaps/x", None, '404 NotFound: configmaps "x" not found'),
    ("GET {networking}/ingresses/x", None, '404 NotFound: ingresses.networking.k8s.io "x" not found'),
    ("POST {place}-no/configmaps", config_map("x"), '404 NotFound: namespaces "place-'),
    ("GET /api/v1/configmaps?fieldSelector=spec.type%3Dx", None, f"400 BadRequest: {NO_FIELD}"),
    ("POST {place}/configmaps", config_map("held"), '409 AlreadyExists: configmaps "held" already exists'),
]


@pytest.mark.parametrize(("asked", "body", "refusal"), REFUSALS, ids=[each[0] for each in REFUSALS])
def test_refusals(server: Server, place: str, asked: str, body: Object | None, refusal: str) -> None:
    created(server, f"{place}/configmaps", config_map("held"))
    method, target = asked.format(place=place, networking=grouped(place, "networking.k8s.io")).split(" ")
    status, answer = request(server.admin, method, target, body)
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


def test_a_watch_tells_all_that_came_after_its_version_and_then_what_comes(
    server: Server, place: str
) -> None:
    path = f"{place}/configmaps"
    created(server, path, config_map("old"))
    since = version(server, path)
    made = created(server, path, config_map("a"))
    request(server.admin, "DELETE", f"{path}/old")
    at = version(server, path)
    with WatchLines(server.admin, f"{path}?resourceVersion={since}") as watch:
        assert watch.response.headers["Transfer-Encoding"] == "chunked"
        assert watch.response.headers["Content-Type"] == "application/json"
        added, deleted = watch.next(), watch.next()
        assert (added["type"], added["object"]) == ("ADDED", made)
        assert (deleted["type"], deleted["object"]["kind"]) == ("DELETED", "ConfigMap")
        assert deleted["object"]["metadata"]["resourceVersion"] == at
        _, changed = request(server.admin, "PATCH", f"{path}/a", {"data": {"k": "v"}})
        modified = watch.next()
        assert (modified["type"], modified["object"]) == ("MODIFIED", changed)


@pytest.mark.parametrize("version_asked", ["", "0"])
def test_without_a_version_the_objects_that_exist_come_first(
    server: Server, place: str, version_asked: str
) -> None:
    path = f"{place}/configmaps"
    for name in "ba":
        created(server, path, config_map(name))
    with WatchLines(server.admin, f"{path}?resourceVersion={version_asked}") as watch:
        assert sorted(watch.seen(2)) == [("ADDED", "a"), ("ADDED", "b")]
        request(server.admin, "DELETE", f"{path}/a")
        assert watch.seen(1) == [("DELETED", "a")]


def test_timeout_seconds_end_the_stream_cleanly(server: Server, place: str) -> None:
    with (
        WatchLines(server.admin, f"{place}/configmaps?resourceVersion=0&timeoutSeconds=1") as watch,
        pytest.raises(EOFError),
    ):
        watch.next()


def test_a_version_that_the_watch_cache_never_had_is_expired(server: Server) -> None:
    with WatchLines(server.admin, "/api/v1/services?resourceVersion=2") as watch:
        event = watch.next()
        assert (watch.response.status, event["type"]) == (200, "ERROR")
        found = event["object"]
    assert (found["kind"], found["code"], found["reason"]) == ("Status", 410, "Expired")
    assert found["message"].startswith("too old resource version: 2 (")


def test_an_object_that_stops_to_match_is_deleted_for_the_client(server: Server, place: str) -> None:
    path = f"{place}/services"
    created(server, path, service("a", "LoadBalancer"))
    created(server, path, service("b"))
    since = version(server, path)
    _, left = request(server.admin, "PATCH", f"{path}/a", {"spec": {"type": "ClusterIP"}})
    request(server.admin, "PATCH", f"{path}/b", {"spec": {"type": "LoadBalancer"}})
    request(server.admin, "PATCH", f"{path}/a", {"metadata": {"labels": {"x": "y"}}})
    request(server.admin, "DELETE", f"{path}/a")
    request(server.admin, "DELETE", f"{path}/b")
    query = f"resourceVersion={since}&fieldSelector=spec.type%3DLoadBalancer"
    with WatchLines(server.admin, f"{path}?{query}") as watch:
        event = watch.next()
        assert (event["type"], event["object"]["spec"]["type"]) == ("DELETED", "LoadBalancer")
        assert event["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
        assert watch.seen(2) == [("ADDED", "b"), ("DELETED", "b")]


# Writes


def test_an_update_from_an_old_version_conflicts(server: Server, place: str) -> None:
    path = f"{place}/configmaps"
    first = created(server, path, config_map("state", key="1"))
    status, second = request(server.admin, "PUT", f"{path}/state", first | {"data": {"key": "2"}})
    assert status == 200
    _, again = request(server.admin, "PUT", f"{path}/state", second)
    assert again["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"], "it changes nothing"
    status, refused = request(server.admin, "PUT", f"{path}/state", first | {"data": {"key": "3"}})
    assert (status, refused["reason"]) == (409, "Conflict")
    assert refused["message"] == (
        'Operation cannot be fulfilled on configmaps "state": the object has been modified; please apply '
        "your changes to the latest version and try again"
    )
    other = {"metadata": {"name": "state", "uid": "11111111-2222-3333-4444-555555555555"}}
    assert request(server.admin, "PUT", f"{path}/state", other)[1]["reason"] == "Conflict"
    assert request(server.admin, "GET", f"{path}/state")[1]["data"] == {"key": "2"}


def test_deletions(server: Server, place: str) -> None:
    created(server, f"{place}/configmaps", config_map("a"))
    _, deleted = request(server.admin, "DELETE", f"{place}/configmaps/a")
    assert (deleted["kind"], deleted["status"], deleted["details"]["name"]) == ("Status", "Success", "a")
    assert request(server.admin, "GET", f"{place}/configmaps/a")[0] == 404


def test_a_deletion_in_the_foreground_waits_for_the_garbage_collector(server: Server, place: str) -> None:
    path, namespace = f"{grouped(place, 'apps')}/daemonsets", place.rpartition("/")[2]
    created(server, path, objects.daemon_set("a", namespace))
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
    for _ in range(2):
        status, marked = request(server.admin, "DELETE", f"{path}/a", options)
        assert (status, marked["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
        assert "deletionTimestamp" in marked["metadata"]
    assert request(server.admin, "PATCH", f"{path}/a", {"metadata": {"finalizers": None}})[0] == 200
    assert request(server.admin, "GET", f"{path}/a")[0] == 404
    created(server, path, objects.daemon_set("b", namespace))
    assert request(server.admin, "DELETE", f"{path}/b")[1]["kind"] == "Status"


def test_apply_creates_and_merges(server: Server, place: str) -> None:
    path = f"{place}/configmaps/a"
    manager = "?fieldManager=helm&force=true"
    made = config_map("a", k="1")
    assert request(server.admin, "PATCH", path + manager, made, APPLY)[0] == 201
    made["metadata"]["labels"] = {"x": "y"}
    status, found = request(server.admin, "PATCH", path + manager, made, APPLY)
    assert (status, found["metadata"]["labels"], found["data"]) == (200, {"x": "y"}, {"k": "1"})
    request(server.admin, "PATCH", path, {"data": {"other": "writer"}})
    made["data"] = {"l": "2"}
    _, found = request(server.admin, "PATCH", path + manager, made, APPLY)
    assert found["data"] == {"l": "2", "other": "writer"}, "what is no longer applied is removed"


# What exists


def test_groups_versions_and_resources_are_told(server: Server) -> None:
    found = request(server.admin, "GET", "/apis")[1]
    assert found["kind"] == "APIGroupList"
    groups = {group["name"]: [one["version"] for one in group["versions"]] for group in found["groups"]}
    assert groups["networking.k8s.io"] == ["v1"]
    assert groups["discovery.k8s.io"] == ["v1"]
    assert "gateway.networking.k8s.io" not in groups
    found = request(server.admin, "GET", "/apis/networking.k8s.io/v1")[1]
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "networking.k8s.io/v1")
    told = {
        entry["name"]: (entry["kind"], entry["namespaced"], entry["verbs"]) for entry in found["resources"]
    }
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    for name, kind, namespaced in (
        ("ingresses", "Ingress", True),
        ("ingressclasses", "IngressClass", False),
        ("servicecidrs", "ServiceCIDR", False),
    ):
        assert told[name] == (kind, namespaced, verbs)
    assert request(server.admin, "GET", "/api/v1")[1]["groupVersion"] == "v1"
    assert request(server.admin, "GET", "/apis/apps")[1]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert request(server.admin, "GET", "/version")[1]["gitVersion"].startswith("v1.")
