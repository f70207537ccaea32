"""What the server says of itself, and how resources come and go while it runs."""

from .resources import Object, custom
from .server import ApiServer
from .wire import exchange, request

ROUTES = custom("gateway.networking.k8s.io", "v1 v1beta1", "HTTPRoute")
PATH = "/apis/gateway.networking.k8s.io/v1/httproutes"


def route(name: str) -> Object:
    """Build a Route."""
    return {"kind": "HTTPRoute", "apiVersion": "gateway.networking.k8s.io/v1", "metadata": {"name": name}}


def groups(api: ApiServer) -> dict[str, list[str]]:
    """Give the groups with their versions."""
    status, found = request(api, "GET", "/apis")
    assert (status, found["kind"]) == (200, "APIGroupList")
    return {group["name"]: [one["version"] for one in group["versions"]] for group in found["groups"]}


def test_groups_versions_and_resources_are_told(api: ApiServer) -> None:
    assert groups(api)["networking.k8s.io"] == ["v1"]
    _, found = request(api, "GET", "/apis/networking.k8s.io/v1")
    assert (found["kind"], found["groupVersion"]) == ("APIResourceList", "networking.k8s.io/v1")
    told = {entry["name"]: (entry["kind"], entry["namespaced"]) for entry in found["resources"]}
    assert told == {
        "ingresses": ("Ingress", True),
        "ingresses/status": ("Ingress", True),
        "ingressclasses": ("IngressClass", False),
        "servicecidrs": ("ServiceCIDR", False),
    }
    assert request(api, "GET", "/api/v1")[1]["groupVersion"] == "v1"
    assert request(api, "GET", "/apis/apps")[1]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert exchange(api, "GET", "/apis/gateway.networking.k8s.io")[0] == 404


def test_resources_arrive_in_several_versions_of_one_store(api: ApiServer) -> None:
    assert exchange(api, "GET", PATH)[0] == 404
    api.store.serve(*ROUTES)
    assert groups(api)["gateway.networking.k8s.io"] == ["v1", "v1beta1"]
    api.store.create(route("a"))
    for version in ("v1", "v1beta1"):
        _, listed = request(api, "GET", PATH.replace("v1", version))
        assert [item["apiVersion"] for item in listed["items"]] == [f"gateway.networking.k8s.io/{version}"]


def test_with_its_last_version_a_resource_goes_and_so_do_its_objects(api: ApiServer) -> None:
    api.store.serve(*ROUTES)
    api.store.create(route("a"))
    api.withdraw(ROUTES[1])
    assert len(request(api, "GET", PATH)[1]["items"]) == 1
    api.withdraw(ROUTES[0])
    assert exchange(api, "GET", PATH)[0] == 404
    assert "gateway.networking.k8s.io" not in groups(api)
    api.store.serve(*ROUTES)
    assert request(api, "GET", PATH)[1]["items"] == []
