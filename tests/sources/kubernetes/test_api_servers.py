"""The API servers' own addresses, as they publish them: EndpointSlice default/kubernetes."""

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from nodeagent.model.addresses import Endpoint
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.fail_static import KindState
from nodeagent.sources.kubernetes.resources import API_SERVERS
from nodeagent.sources.kubernetes.single_requests import read_cluster
from nodeagent.sources.manifests import read_manifests
from tests.apiserver import ApiServer, Ending, Rule, objects

from .watching import NODE, until, watching

REAL = frozenset({Endpoint(ip_address("192.0.2.10"), 6443), Endpoint(ip_address("192.0.2.11"), 6443)})
_REST = [Rule([group], ["*"], ["list", "watch"]) for group in ("", "networking.k8s.io")]
_BY_NAME = Rule(["discovery.k8s.io"], ["endpointslices"], ["list", "watch"], ["kubernetes"])


def published(*addresses: str, name: str = "kubernetes", namespace: str = "default") -> dict[str, Any]:
    """The EndpointSlice that API servers write; the second of them is about to end."""
    endpoints = [objects.Endpoint(each, "", ready=at == 0) for at, each in enumerate(addresses)]
    return objects.endpoint_slice(name, name, namespace, endpoints=endpoints, ports={"https": 6443})


def test_they_are_followed_by_a_right_to_that_one_object(api: ApiServer, connection: Connection) -> None:
    api.access.allow_only([*_REST, _BY_NAME])
    api.store.create(published("192.0.2.10"))
    api.store.create(published("203.0.113.66", name="tenant"))
    api.store.create(published("203.0.113.67", namespace="tenant"))
    with watching(api, connection) as watched:
        assert watched.snapshot().api_servers < REAL
        assert watched.snapshot().not_covered == ()
        api.store.apply(published("192.0.2.10", "192.0.2.11"))
        until(lambda: watched.snapshot().api_servers == REAL, "the second API server")
    assert read_cluster(connection, NODE).api_servers == REAL


def test_what_is_known_stays_when_the_right_is_withdrawn(api: ApiServer, connection: Connection) -> None:
    api.store.create(published("192.0.2.10", "192.0.2.11"))
    with watching(api, connection) as watched:
        api.access.allow_only(_REST)
        api.end_watches(Ending.CLEAN)
        until(lambda: watched.state(API_SERVERS.name).state is KindState.DENIED, "the refusal")
        assert watched.snapshot().api_servers == REAL
        (line,) = [each for each in watched.snapshot().not_covered if each.startswith(API_SERVERS.name)]
        assert "forbidden" in line
    once = read_cluster(connection, NODE)
    assert (once.api_servers, once.node is not None, len(once.not_covered)) == (frozenset(), True, 1)


def test_manifests_have_them_too(tmp_path: Path) -> None:
    documents = [published("192.0.2.10", "192.0.2.11"), published("203.0.113.66", name="tenant")]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": documents}), encoding="utf-8")
    assert read_manifests(file, NODE).api_servers == REAL
