"""resourceVersion, optimistic locking, subresources and deletion."""

from .objects import config_map, daemon_set, ingress, load_balancer, service
from .server import ApiServer
from .wire import request

SERVICES = "/api/v1/namespaces/default/services"


def test_every_write_to_any_resource_gets_the_next_version(api: ApiServer) -> None:
    _, first = request(api, "POST", SERVICES, service("a"))
    _, second = request(api, "POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", ingress("b"))
    _, listed = request(api, "GET", "/api/v1/nodes")
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in (first, second, listed)]
    assert versions == [versions[0], versions[0] + 1, versions[0] + 1]


def test_create_fills_in_what_the_server_owns(api: ApiServer) -> None:
    status, created = request(
        api, "POST", SERVICES, load_balancer("a", addresses=["192.0.2.1"], annotations={})
    )
    assert status == 201
    assert {"uid", "creationTimestamp", "resourceVersion"} <= created["metadata"].keys()
    assert "status" not in created, "status is a subresource: a create does not write it"
    status, refused = request(api, "POST", SERVICES, service("a"))
    assert (status, refused["reason"]) == (409, "AlreadyExists")
    assert refused["message"] == 'services "a" already exists'


def test_the_generation_grows_with_the_spec_alone(api: ApiServer) -> None:
    path = "/apis/apps/v1/namespaces/nodeagent/daemonsets"
    _, created = request(api, "POST", path, daemon_set("a", "nodeagent"))
    kind = {"Content-Type": "application/merge-patch+json"}
    path = f"{path}/a"
    _, labelled = request(api, "PATCH", path, {"metadata": {"labels": {"a": "b"}, "generation": 9}}, kind)
    _, told = request(api, "PATCH", f"{path}/status", {"status": {"numberReady": 2}}, kind)
    _, changed = request(api, "PATCH", path, {"spec": {"minReadySeconds": 7}}, kind)
    found = [obj["metadata"]["generation"] for obj in (created, labelled, told, changed)]
    assert found == [1, 1, 1, 2]


def test_generate_name(api: ApiServer) -> None:
    event = {"metadata": {"generateName": "nodeagent-"}, "reason": "NameNotAllowed", "type": "Warning"}
    status, created = request(api, "POST", "/api/v1/namespaces/default/events", event)
    assert status == 201
    assert created["metadata"]["name"].startswith("nodeagent-")
    _, found = request(api, "GET", "/api/v1/events?fieldSelector=reason%3DNameNotAllowed")
    assert [item["metadata"]["name"] for item in found["items"]] == [created["metadata"]["name"]]


def test_an_update_from_an_old_version_conflicts(api: ApiServer) -> None:
    path = "/api/v1/namespaces/default/configmaps/state"
    first = api.store.create(config_map("state", data={"key": "1"}))
    status, second = request(api, "PUT", path, first | {"data": {"key": "2"}})
    assert status == 200
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    status, refused = request(api, "PUT", path, first | {"data": {"key": "3"}})
    assert (status, refused["reason"]) == (409, "Conflict")
    assert refused["message"].startswith(
        'Operation cannot be fulfilled on configmaps "state": the object has'
    )
    assert api.store.get("configmaps", "state", "default")["data"] == {"key": "2"}


def test_a_write_that_changes_nothing_makes_no_version(api: ApiServer) -> None:
    first = api.store.create(config_map("state", data={"key": "1"}))
    _, again = request(api, "PUT", "/api/v1/namespaces/default/configmaps/state", first)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_lease_is_not_updated_without_its_version(api: ApiServer) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    request(api, "POST", leases, {"metadata": {"name": "lock"}, "spec": {"holderIdentity": "a"}})
    status, refused = request(api, "PUT", f"{leases}/lock", {"metadata": {"name": "lock"}, "spec": {}})
    assert (status, refused["reason"]) == (422, "Invalid")


def test_status_and_the_rest_are_written_apart(api: ApiServer) -> None:
    api.store.create(service("a", kind="LoadBalancer"))
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}
    code, patched = request(
        api, "PATCH", f"{SERVICES}/a/status", {"status": status, "spec": {"type": "ClusterIP"}}
    )
    assert (code, patched["status"], patched["spec"]["type"]) == (200, status, "LoadBalancer")
    changed = patched | {"status": {}, "spec": patched["spec"] | {"sessionAffinity": "ClientIP"}}
    code, put = request(api, "PUT", f"{SERVICES}/a", changed)
    assert (code, put["status"], put["spec"]["sessionAffinity"]) == (200, status, "ClientIP")
    code, put = request(api, "PUT", f"{SERVICES}/a/status", put | {"status": {"loadBalancer": {}}})
    assert (code, put["status"]) == (200, {"loadBalancer": {}})
    assert request(api, "GET", "/api/v1/namespaces/default/configmaps/x/status")[0] == 404


def test_merge_patch_removes_with_null_and_refuses_other_kinds(api: ApiServer) -> None:
    api.store.create(config_map("state", data={"a": "1", "b": "2"}))
    path = "/api/v1/namespaces/default/configmaps/state"
    _, patched = request(api, "PATCH", path, {"data": {"a": None, "c": "3"}})
    assert patched["data"] == {"b": "2", "c": "3"}
    kind = {"Content-Type": "application/strategic-merge-patch+json"}
    assert request(api, "PATCH", path, {}, kind)[0] == 415


def test_delete_answers_a_status_or_the_object(api: ApiServer) -> None:
    api.store.create_many([service("a"), config_map("a")])
    _, deleted = request(api, "DELETE", "/api/v1/namespaces/default/configmaps/a")
    assert (deleted["kind"], deleted["status"], deleted["details"]["name"]) == ("Status", "Success", "a")
    status, refused = request(api, "DELETE", f"{SERVICES}/a", {"preconditions": {"uid": "another"}})
    assert (status, refused["reason"]) == (409, "Conflict")
    assert request(api, "DELETE", f"{SERVICES}/a")[1]["kind"] == "Service"
    status, missing = request(api, "GET", f"{SERVICES}/a")
    assert (status, missing["message"]) == (404, 'services "a" not found')


def test_finalizers_keep_an_object_until_the_last_is_gone(api: ApiServer) -> None:
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets/nodeagent"
    api.store.create(daemon_set("nodeagent", finalizers=["foregroundDeletion"]))
    _, marked = request(api, "DELETE", path)
    assert "deletionTimestamp" in marked["metadata"]
    assert "deletionTimestamp" in request(api, "GET", path)[1]["metadata"]
    assert request(api, "PATCH", path, {"metadata": {"finalizers": None}})[0] == 200
    assert request(api, "GET", path)[0] == 404


def test_what_does_not_belong_is_refused(api: ApiServer) -> None:
    status, refused = request(api, "POST", SERVICES, service("a", "elsewhere"))
    assert (status, refused["reason"]) == (400, "BadRequest")
    assert request(api, "POST", SERVICES, ingress("a"))[0] == 400
    assert request(api, "POST", SERVICES, {"metadata": {}})[0] == 422
    api.store.create(service("a"))
    assert request(api, "PUT", f"{SERVICES}/a", service("b"))[0] == 400
    assert request(api, "PUT", SERVICES, service("b"))[0] == 405
    assert request(api, "POST", f"{SERVICES}?dryRun=All", service("b"))[0] == 400


def test_replace_all_changes_only_what_differs(api: ApiServer) -> None:
    same, changed, gone = ingress("same"), ingress("changed"), ingress("gone")
    api.store.create_many([same, changed, gone])
    before = api.store.get("ingresses", "same", "default")["metadata"]["resourceVersion"]
    api.store.replace_all("ingresses", [same, ingress("changed", hosts=["b.example.com"]), ingress("new")])
    assert [obj["metadata"]["name"] for obj in api.store.all("ingresses")] == ["changed", "new", "same"]
    assert api.store.get("ingresses", "same", "default")["metadata"]["resourceVersion"] == before
    assert api.store.get("ingresses", "changed", "default")["spec"]["rules"][0]["host"] == "b.example.com"


def test_a_deletion_in_the_foreground_waits_for_the_garbage_collector(api: ApiServer) -> None:
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets/nodeagent"
    api.store.create(daemon_set("nodeagent"))
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
    status, marked = request(api, "DELETE", path, options)
    assert (status, marked["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
    assert request(api, "PATCH", path, {"metadata": {"finalizers": None}})[0] == 200
    assert request(api, "GET", path)[0] == 404


def test_apply_creates_and_merges(api: ApiServer) -> None:
    path = f"{SERVICES}/a?fieldManager=helm&force=true"
    kind = {"Content-Type": "application/apply-patch+yaml"}
    made = {**service("a"), "metadata": {"name": "a"}}
    assert request(api, "PATCH", path, made, headers=kind)[0] == 201
    made["metadata"] = {"name": "a", "labels": {"x": "y"}}
    status, found = request(api, "PATCH", path, made, headers=kind)
    assert (status, found["metadata"]["labels"]) == (200, {"x": "y"})
