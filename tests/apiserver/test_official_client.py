"""The official Python client against the simulated server."""

import subprocess
from pathlib import Path

import pytest
import urllib3
from kubernetes import client, config, watch

from . import faults
from .objects import Endpoint, endpoint_slice, ingress, load_balancer, node, service
from .server import ApiServer, Tls


def test_typed_lists_with_a_field_selector(api: ApiServer, official: client.ApiClient) -> None:
    annotations = {"service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol": "true"}
    api.store.create_many(
        [
            load_balancer("lb", "ingress-nginx", addresses=["192.0.2.1"], annotations=annotations),
            service("web"),
            node("n1"),
            endpoint_slice("web-x", "web", endpoints=[Endpoint("10.244.0.5", "n1")]),
            ingress("site", hosts=["www.example.com"]),
        ]
    )
    core = client.CoreV1Api(official)
    plain = official.sanitize_for_serialization
    found = plain(core.list_service_for_all_namespaces(field_selector="spec.type=LoadBalancer"))
    assert [item["metadata"]["name"] for item in found["items"]] == ["lb"]
    balanced = {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}
    assert found["items"][0]["status"] == {"loadBalancer": balanced}
    assert found["metadata"]["resourceVersion"] == str(api.store.revision)
    assert plain(core.read_node("n1"))["spec"]["podCIDRs"] == ["10.244.0.0/24"]
    discovery, networking = client.DiscoveryV1Api(official), client.NetworkingV1Api(official)
    selector = "kubernetes.io/service-name=web"
    slices = plain(discovery.list_namespaced_endpoint_slice("default", label_selector=selector))
    assert slices["items"][0]["endpoints"][0]["conditions"]["ready"] is True
    sites = plain(networking.list_ingress_for_all_namespaces(limit=1))
    assert sites["items"][0]["spec"]["rules"][0]["host"] == "www.example.com"
    assert client.VersionApi(official).get_code().git_version == "v1.36.0"


def test_writes_and_their_refusals(api: ApiServer, official: client.ApiClient) -> None:
    core = client.CoreV1Api(official)
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="state"), data={"a": "1"})
    created = core.create_namespaced_config_map("default", body)
    created.data = {"a": "2"}
    core.replace_namespaced_config_map("state", "default", created)
    with pytest.raises(client.ApiException) as caught:
        core.replace_namespaced_config_map("state", "default", created)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    core.patch_namespaced_config_map(
        "state", "default", {"data": {"b": "3"}}, _content_type="application/merge-patch+json"
    )
    assert api.store.get("configmaps", "state", "default")["data"] == {"a": "2", "b": "3"}
    core.delete_namespaced_config_map("state", "default")
    with pytest.raises(client.ApiException) as caught:
        core.read_namespaced_config_map("state", "default")
    assert caught.value.status == 404


def test_the_watch_class_streams_and_relists_after_410(api: ApiServer, official: client.ApiClient) -> None:
    networking = client.NetworkingV1Api(official)
    old = str(api.store.revision)
    api.store.create(ingress("a"))
    stream = watch.Watch().stream(
        networking.list_ingress_for_all_namespaces, resource_version=old, timeout_seconds=5
    )
    event = next(stream)
    assert (event["type"], event["object"].metadata.name) == ("ADDED", "a")
    api.store.delete("ingresses", "a", "default")
    assert next(stream)["type"] == "DELETED"
    stream.close()
    api.compact()
    expired = watch.Watch().stream(
        networking.list_ingress_for_all_namespaces, resource_version=old, timeout_seconds=5
    )
    with pytest.raises(client.ApiException) as caught:
        next(expired)
    assert caught.value.status == 410


def test_split_lines_and_a_cut_line_as_the_client_sees_them(
    api: ApiServer, official: client.ApiClient
) -> None:
    api.store.create_many([ingress("a"), ingress("b"), ingress("c")])
    api.faults.add(faults.SplitLines(size=5), times=2)
    networking = client.NetworkingV1Api(official)
    stream = watch.Watch().stream(networking.list_ingress_for_all_namespaces, timeout_seconds=5)
    assert next(stream)["object"].metadata.name == "a"
    assert next(stream)["object"].metadata.name == "b"
    assert next(stream)["object"].metadata.name == "c"
    api.faults.add(faults.CutLine())
    api.store.create(ingress("d"))
    with pytest.raises(urllib3.exceptions.ProtocolError):
        next(stream)


def test_token_in_the_kubeconfig(api: ApiServer, tmp_path: Path) -> None:
    api.access.require_token("good")
    codes = []
    for token in (None, "bad"):
        config.load_kube_config(str(api.write_kubeconfig(tmp_path / "config", token)))
        with client.ApiClient() as connected:
            try:
                client.CoreV1Api(connected).list_node()
                codes.append(200)
            except client.ApiException as error:
                codes.append(error.status)
            connected.rest_client.pool_manager.clear()
    assert codes == [200, 401]


def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    name = ["-subj", "/CN=kube-apiserver", "-addext", "subjectAltName=IP:127.0.0.1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(certificate), *name]
    subprocess.run(command, check=True, capture_output=True)
    with ApiServer(tls=Tls(certificate, key, certificate)) as api:
        api.store.create(node("n1"))
        assert api.url.startswith("https://")
        config.load_kube_config(str(api.write_kubeconfig(tmp_path / "config")))
        with client.ApiClient() as connected:
            core = client.CoreV1Api(connected)
            assert connected.sanitize_for_serialization(core.read_node("n1"))["metadata"]["name"] == "n1"
            stream = watch.Watch().stream(core.list_node, timeout_seconds=5)
            assert next(stream)["object"].metadata.name == "n1"
            api.store.delete("nodes", "n1")
            assert next(stream)["type"] == "DELETED"
            stream.close()
            connected.rest_client.pool_manager.clear()
        with urllib3.PoolManager(retries=False) as strangers, pytest.raises(urllib3.exceptions.SSLError):
            strangers.request("GET", f"{api.url}/version")
