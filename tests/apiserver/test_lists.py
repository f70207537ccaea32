"""Lists: paging, selectors, versions, unknown paths."""

import gzip
import json
import time
from urllib.parse import quote

from .objects import Endpoint, endpoint_slice, ingress, ingresses, node, service
from .resources import GATEWAY_API, RESOURCES, Object, Resource
from .server import ApiServer
from .wire import exchange, request

INGRESSES = "/apis/networking.k8s.io/v1/ingresses"


def names(listed: Object) -> list[str]:
    """Give the names in a list."""
    return [item["metadata"]["name"] for item in listed["items"]]


def test_thousands_of_ingresses_in_pages_are_one_snapshot(api: ApiServer, soak: bool) -> None:  # noqa: FBT001 - a fixture
    count = 10_000 if soak else 2_000
    many = list(ingresses(count))
    begun = time.process_time()
    api.store.create_many(many)
    assert time.process_time() - begun < count / 10_000
    seen: list[str] = []
    token = ""
    versions = set()
    remaining = []
    while True:
        _, page = request(api, "GET", f"{INGRESSES}?limit=500&continue={quote(token)}")
        seen += names(page)
        versions.add(page["metadata"]["resourceVersion"])
        remaining.append(page["metadata"].get("remainingItemCount"))
        # What happens between the pages is not in them.
        api.store.delete("ingresses", f"site-{len(seen) - 1:05}", "default")
        if len(seen) == 500:
            api.store.create(ingress("zzz"))
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert seen == [f"site-{number:05}" for number in range(count)]
    assert len(versions) == 1
    assert remaining == [*range(count - 500, 0, -500), None]


def test_pages_over_namespaces_come_in_the_order_of_keys(api: ApiServer) -> None:
    api.store.create_many([ingress("x", "a"), ingress("x", "a-b"), ingress("y", "a"), ingress("x", "b")])
    _, first = request(api, "GET", f"{INGRESSES}?limit=2")
    _, second = request(api, "GET", f"{INGRESSES}?limit=2&continue={first['metadata']['continue']}")
    found = [item["metadata"]["namespace"] for item in first["items"] + second["items"]]
    assert found == ["a-b", "a", "a", "b"]
    _, one = request(api, "GET", "/apis/networking.k8s.io/v1/namespaces/a/ingresses?limit=1")
    assert (names(one), one["metadata"]["remainingItemCount"]) == (["x"], 1)


def test_a_continue_token_expires_with_its_history(api: ApiServer) -> None:
    api.store.create_many(ingresses(4))
    _, page = request(api, "GET", f"{INGRESSES}?limit=2")
    api.store.delete("ingresses", "site-00002", "default")
    api.compact()
    status, refused = request(api, "GET", f"{INGRESSES}?limit=2&continue={page['metadata']['continue']}")
    assert (status, refused["reason"]) == (410, "Expired")
    # The Status brings a token that goes on with what stands now.
    _, rest = request(api, "GET", f"{INGRESSES}?limit=2&continue={refused['metadata']['continue']}")
    assert names(rest) == ["site-00003"]
    assert request(api, "GET", f"{INGRESSES}?continue=rubbish")[0] == 400


def test_versions_asked_of_a_list(api: ApiServer) -> None:
    old = int(api.store.create(ingress("a"))["metadata"]["resourceVersion"])
    api.store.create(ingress("b"))
    assert names(request(api, "GET", f"{INGRESSES}?resourceVersion={old}&resourceVersionMatch=Exact")[1]) == [
        "a"
    ]
    newer = f"{INGRESSES}?resourceVersion={old}&resourceVersionMatch=NotOlderThan"
    assert names(request(api, "GET", newer)[1]) == ["a", "b"]
    # The watch cache answers for version 0, and pays no heed to the limit.
    assert names(request(api, "GET", f"{INGRESSES}?resourceVersion=0&limit=1")[1]) == ["a", "b"]
    status, headers, body = exchange(api, "GET", f"{INGRESSES}?resourceVersion={old + 100}")
    assert (status, json.loads(body)["reason"], headers["Retry-After"]) == (504, "Timeout", "1")
    assert request(api, "GET", f"{INGRESSES}?resourceVersion=new")[0] == 400
    api.compact()
    assert request(api, "GET", f"{INGRESSES}?resourceVersion={old}&resourceVersionMatch=Exact")[0] == 410


def test_items_of_built_in_types_do_not_state_their_type(api: ApiServer) -> None:
    api.store.serve(*GATEWAY_API)
    gateway = {"kind": "Gateway", "apiVersion": "gateway.networking.k8s.io/v1", "metadata": {"name": "g"}}
    api.store.create_many([service("a"), gateway])
    _, listed = request(api, "GET", "/api/v1/services")
    assert (listed["kind"], listed["apiVersion"]) == ("ServiceList", "v1")
    assert "kind" not in listed["items"][0]
    assert request(api, "GET", "/api/v1/namespaces/default/services/a")[1]["kind"] == "Service"
    _, custom = request(api, "GET", "/apis/gateway.networking.k8s.io/v1/gateways")
    assert custom["items"][0]["kind"] == "Gateway"


def test_field_selectors(api: ApiServer) -> None:
    api.store.create_many([service("a"), service("b", kind="LoadBalancer"), service("c", "other")])

    def found(selector: str) -> list[str]:
        return names(request(api, "GET", f"/api/v1/services?fieldSelector={quote(selector)}")[1])

    assert found("spec.type=LoadBalancer") == ["b"]
    assert found("spec.type!=LoadBalancer") == ["a", "c"]
    assert found("metadata.namespace=default,metadata.name==a") == ["a"]
    status, refused = request(api, "GET", "/api/v1/services?fieldSelector=spec.colour%3Dred")
    assert (status, refused["message"]) == (400, "field label not supported: spec.colour")
    api.store.create_many([node("n1"), node("n2")])
    assert names(request(api, "GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn2")[1]) == ["n2"]


def test_servers_before_1_31_do_not_know_the_type_of_services(api: ApiServer) -> None:
    api.options.service_fields = False
    for watch in ("", "&watch=1"):
        status, refused = request(
            api, "GET", f"/api/v1/services?fieldSelector=spec.type%3DLoadBalancer{watch}"
        )
        assert (status, refused["reason"]) == (400, "BadRequest")
        known = 'only "metadata.name", "metadata.namespace"'
        assert refused["message"] == f'"spec.type" is not a known field selector: {known}'


def test_label_selectors(api: ApiServer) -> None:
    ready = [Endpoint("10.244.0.5", "n1")]
    api.store.create_many(
        [endpoint_slice("web-x", "web", endpoints=ready), endpoint_slice("dns-x", "dns", endpoints=ready)]
    )
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector="

    def found(selector: str) -> list[str]:
        return names(request(api, "GET", path + quote(selector))[1])

    assert found("kubernetes.io/service-name=web") == ["web-x"]
    assert found("kubernetes.io/service-name!=web,other!=x") == ["dns-x"]
    assert found("kubernetes.io/service-name in (web, mail)") == ["web-x"]
    assert found("kubernetes.io/service-name notin (web)") == ["dns-x"]
    assert found("kubernetes.io/service-name,!other") == ["dns-x", "web-x"]
    assert request(api, "GET", path + quote("a b"))[0] == 400


def test_pages_with_a_selector_do_not_tell_how_much_remains(api: ApiServer) -> None:
    api.store.create_many(service(f"s{number}", kind="LoadBalancer") for number in range(3))
    _, page = request(api, "GET", "/api/v1/services?limit=2&fieldSelector=spec.type%3DLoadBalancer")
    assert names(page) == ["s0", "s1"]
    assert "continue" in page["metadata"]
    assert "remainingItemCount" not in page["metadata"]


def test_unknown_paths(api: ApiServer) -> None:
    status, refused = request(api, "GET", "/api/v1/wonders")
    assert (status, refused["kind"], refused["reason"]) == (404, "Status", "NotFound")
    assert refused["message"] == "the server could not find the requested resource"
    status, headers, body = exchange(api, "GET", "/apis/wonders.example.com/v1/wonders")
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert body == b"404 page not found\n"


def test_another_resource_is_one_row() -> None:
    wonder = Resource("wonders.example.com", "v1", "wonders", "Wonder", custom=True)
    with ApiServer(resources=(*RESOURCES, wonder)) as api:
        obj = {"kind": "Wonder", "apiVersion": "wonders.example.com/v1", "metadata": {"name": "w"}}
        api.store.create(obj)
        assert names(request(api, "GET", "/apis/wonders.example.com/v1/wonders")[1]) == ["w"]


def test_version_and_health(api: ApiServer) -> None:
    assert request(api, "GET", "/version")[1]["gitVersion"] == "v1.36.0"
    assert exchange(api, "GET", "/healthz")[2] == b"ok"


def test_large_answers_are_compressed_for_clients_that_ask(api: ApiServer) -> None:
    api.store.create_many(ingresses(200))
    _, headers, body = exchange(api, "GET", INGRESSES, headers={"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(body))["items"]) == 200
    assert "Content-Encoding" not in exchange(api, "GET", INGRESSES)[1]


def test_clients_that_read_no_json_are_refused(api: ApiServer) -> None:
    assert request(api, "GET", INGRESSES, headers={"Accept": "text/html"})[0] == 406
