"""Manifests on disk: what is read, and what is said of what can't be."""

import json
import os
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from nodeagent.model.objects import IngressClass, Service, ServicePort, Snapshot
from nodeagent.sources.manifests import read_manifests


def load_balancer(name: str = "controller", **spec: object) -> dict[str, Any]:
    """A Service of type LoadBalancer as the API gives it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "ingress"},
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.7",
            "clusterIPs": ["10.96.0.7"],
            "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
            **spec,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    }


def ingress(**spec: object) -> dict[str, Any]:
    """An Ingress as the API gives it."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "site", "namespace": "web"},
        "spec": spec,
    }


def read(directory: Path, text: str | bytes, name: str = "manifest.yaml") -> Snapshot:
    """The Snapshot of a directory with one file in it."""
    (directory / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return read_manifests(directory, "node1")


def names(snapshot: Snapshot) -> list[str]:
    """The Services' names in the order read."""
    return [service.ref.name for service in snapshot.services]


def complaints(snapshot: Snapshot) -> list[tuple[str, str]]:
    """File and line (without the directory), and reason, of all that could not be read."""
    return [(entry.where.rpartition("/")[2], entry.reason) for entry in snapshot.unreadable]


def only_service(snapshot: Snapshot) -> Service:
    """The one Service, where nothing else is wrong."""
    assert not snapshot.unreadable
    (service,) = snapshot.services
    return service


def test_every_document_of_a_file_is_read(tmp_path: Path) -> None:
    """Comments, empty documents and a separator at either end hold nothing."""
    text = "---\n# a comment\n---\n" + "\n---  # next\n".join(
        json.dumps(load_balancer(name)) for name in ("one", "two", "three")
    )
    snapshot = read(tmp_path, text + "\n---\n\n---\n# the end\n---\n")
    assert names(snapshot) == ["one", "two", "three"]
    assert not snapshot.unreadable


_BLOCK = """\
kind: Service
metadata:
  name: one
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.7
  ports:
  - port: 80
---
kind: Service
metadata: {name: two}
spec: {type: LoadBalancer}
"""
_ITEMS = [load_balancer("one"), load_balancer("two")]
_WITHOUT_KIND = [{key: value for key, value in item.items() if key != "kind"} for item in _ITEMS]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("block.yaml", _BLOCK),
        ("windows.yaml", _BLOCK.replace("\n", "\r\n")),
        ("windows-too.yaml", f"\ufeff{_BLOCK}"),
        ("tabs.json", json.dumps({"kind": "List", "items": _ITEMS}, indent="\t")),
        ("api.yaml", json.dumps({"kind": "ServiceList", "items": _ITEMS})),
        ("api-too.yaml", json.dumps({"kind": "ServiceList", "items": _WITHOUT_KIND})),
    ],
)
def test_each_form_of_a_file_is_read(tmp_path: Path, name: str, text: str) -> None:
    """As kubectl prints it, as editors on Windows save it, and as the API gives a list."""
    assert names(read(tmp_path, text, name)) == ["one", "two"]


@pytest.mark.parametrize("items", [[], None])
def test_an_empty_list_holds_nothing(tmp_path: Path, items: object) -> None:
    """Go writes an empty list as null."""
    assert read(tmp_path, json.dumps({"kind": "List", "items": items})) == Snapshot()


def test_a_broken_item_of_a_list_hides_no_other(tmp_path: Path) -> None:
    """It is named by its place in the list."""
    broken = load_balancer("broken", ports=7)
    items = [load_balancer("one"), broken, 5, load_balancer("two")]
    snapshot = read(tmp_path, json.dumps({"kind": "List", "items": items}))
    assert names(snapshot) == ["one", "two"]
    assert [where for where, _ in complaints(snapshot)] == [
        "broken",
        "manifest.yaml:1: items[2]",
    ]
    assert "manifest.yaml:1: items[1]: Service ingress/broken" in snapshot.unreadable[0].where


@pytest.mark.parametrize(
    ("broken", "line"),
    [("kind: Service\nmetadata: {name: ]}", 6), ("kind: Service\nmetadata:\n\tname: x", 7)],
)
def test_a_broken_document_hides_no_other_and_is_named_by_its_line(
    tmp_path: Path, broken: str, line: int
) -> None:
    """The line is the file's, not the document's."""
    one, two = (json.dumps(item) for item in _ITEMS)
    snapshot = read(tmp_path, f"# first\n---\n{one}\n---\n{broken}\n---\n{two}\n")
    assert names(snapshot) == ["one", "two"]
    ((where, reason),) = complaints(snapshot)
    assert where == f"manifest.yaml:{line}"
    assert reason.startswith("not YAML: ")


@pytest.mark.parametrize(
    "text", ["a: b\n", "just words\n", "- 1\n- 2\n", "5\n", "kind: 5\n", "kind:\n", "[]", "[1]"]
)
def test_what_is_no_api_object_is_named(tmp_path: Path, text: str) -> None:
    """YAML, but nothing that Kubernetes knows."""
    assert complaints(read(tmp_path, text)) == [
        ("manifest.yaml:1", "not an API object: it has no kind"),
    ]


@pytest.mark.parametrize("text", ["{", '{"kind": "Service",}', '{"kind": "Service"} x', '{"kind": nonsense}'])
def test_a_file_that_begins_like_json_and_is_none_is_named(tmp_path: Path, text: str) -> None:
    """One line of reason."""
    ((where, reason),) = complaints(read(tmp_path, text, "bad.json"))
    assert where.startswith("bad.json")
    assert reason.startswith("not JSON: ")
    assert "\n" not in reason


def test_an_object_given_twice_is_named_and_the_first_is_used(tmp_path: Path) -> None:
    """Files are read in the order of their names."""
    (tmp_path / "a.yaml").write_text(json.dumps(load_balancer(clusterIPs=["10.96.0.1"])), encoding="utf-8")
    snapshot = read(tmp_path, json.dumps(load_balancer(clusterIPs=["10.96.0.2"])), "b.yaml")
    (service,) = snapshot.services
    assert service.cluster_ips == (ip_address("10.96.0.1"),)
    (entry,) = snapshot.unreadable
    assert entry.where.endswith("b.yaml:1: Service ingress/controller")
    assert entry.reason == "given twice; the first one is used"


@pytest.mark.parametrize(
    ("version", "used"),
    [
        ("networking.k8s.io/v1", True),
        ("", True),
        ("networking.internal.knative.dev/v1alpha1", False),
        ("v1", False),
    ],
)
def test_a_kind_is_told_from_others_of_its_name_by_its_group(
    tmp_path: Path, version: str, *, used: bool
) -> None:
    found = read(tmp_path, json.dumps({**ingress(), "apiVersion": version}))
    assert (len(found.ingresses), found.unreadable) == (int(used), ())


def test_a_custom_kind_needs_its_group(tmp_path: Path) -> None:
    """There are many Gateways."""
    gateway = {"kind": "Gateway", "metadata": {"name": "site", "namespace": "web"}, "spec": {}}
    versions = ("gateway.networking.k8s.io/v1", "networking.istio.io/v1", "example.com/v1", None)
    found = [read(tmp_path, json.dumps({**gateway, "apiVersion": version})) for version in versions]
    assert [(len(one.gateways), len(one.controller_routes)) for one in found] == [
        (1, 0),
        (0, 1),
        (0, 0),
        (0, 0),
    ]


@pytest.mark.parametrize("metadata", [{}, {"namespace": "ingress"}, None, [], {"name": 7}])
def test_an_object_without_a_name_is_named_by_its_kind(tmp_path: Path, metadata: object) -> None:
    """All that is known of it."""
    snapshot = read(tmp_path, json.dumps({**load_balancer(), "metadata": metadata}))
    assert not snapshot.services
    (entry,) = snapshot.unreadable
    assert entry.where.endswith("manifest.yaml:1: Service without a usable name")


@pytest.mark.parametrize(
    ("spec", "at"),
    [
        ({"type": 7}, "$.spec.type"),
        ({"clusterIPs": [1]}, "$.spec.clusterIPs[0]"),
        ({"ports": "https"}, "$.spec.ports"),
        ({"ports": [{"port": "443"}]}, "$.spec.ports[0].port"),
        ({"ports": [{"port": True}]}, "$.spec.ports[0].port"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(tmp_path: Path, spec: dict[str, object], at: str) -> None:
    """The object by name, the field by its path."""
    found = load_balancer()
    found["spec"] |= spec
    snapshot = read(tmp_path, json.dumps(found))
    assert not snapshot.services
    (entry,) = snapshot.unreadable
    assert entry.where.endswith("manifest.yaml:1: Service ingress/controller")
    assert entry.reason.endswith(f"`{at}`")


@pytest.mark.parametrize("status", [None, {}, {"loadBalancer": None}, {"loadBalancer": {"ingress": None}}])
def test_a_status_without_an_address_is_no_error(tmp_path: Path, status: object) -> None:
    """The provider has given none yet."""
    assert only_service(read(tmp_path, json.dumps({**load_balancer(), "status": status}))).points == ()


@pytest.mark.parametrize("number", [0, -1, 65536, 10**30])
def test_an_impossible_port_is_left_out_and_named(tmp_path: Path, number: int) -> None:
    """The other ports are used."""
    service = only_service(read(tmp_path, json.dumps(load_balancer(ports=[{"port": number}, {"port": 443}]))))
    assert service.ports == (ServicePort("", "TCP", 443),)
    assert service.problems == (f"spec.ports: {number} is not a port number",)


@pytest.mark.parametrize(
    ("spec", "found", "problems"),
    [
        ({"clusterIP": "None", "clusterIPs": ["None"]}, [], []),
        ({"clusterIPs": None}, ["10.96.0.7"], []),
        (
            {"clusterIPs": ["ten", "10.96.0.7"]},
            ["10.96.0.7"],
            ["spec.clusterIPs: 'ten' is not an IP address"],
        ),
    ],
    ids=["headless", "from-before-dual-stack", "invalid"],
)
def test_cluster_ips(tmp_path: Path, spec: dict[str, Any], found: list[str], problems: list[str]) -> None:
    service = only_service(read(tmp_path, json.dumps(load_balancer(**spec))))
    assert [str(address) for address in service.cluster_ips] == found
    assert list(service.problems) == problems


@pytest.mark.parametrize(
    "text", ["not-an-ip", "192.0.2.256", "192.0.2.1/32", "192.0.2.01", " 192.0.2.1", "fe80::1%eth0", "1\n"]
)
def test_an_address_that_is_none_is_left_out_and_named(tmp_path: Path, text: str) -> None:
    """The other addresses of the load balancer are used."""
    found = load_balancer()
    found["status"] = {"loadBalancer": {"ingress": [{"ip": text}, {"ip": "192.0.2.1"}]}}
    service = only_service(read(tmp_path, json.dumps(found)))
    assert service.load_balancer_ips == (ip_address("192.0.2.1"),)
    assert service.problems == (f"status.loadBalancer.ingress[0].ip: {text!r} is not an IP address",)


@pytest.mark.parametrize("spec_type", ["ClusterIP", "NodePort", "ExternalName", None, "loadbalancer"])
def test_of_services_of_another_type_only_the_cluster_ips_count(tmp_path: Path, spec_type: object) -> None:
    """Without a word: a cluster is full of them. But no load balancer may have their addresses."""
    found = read(tmp_path, json.dumps(load_balancer(type=spec_type)))
    assert found == Snapshot(other_cluster_ips=frozenset({ip_address("10.96.0.7")}))


def test_an_object_without_a_namespace_is_in_default(tmp_path: Path) -> None:
    """As kubectl applies it."""
    found = load_balancer()
    del found["metadata"]["namespace"]
    assert only_service(read(tmp_path, json.dumps(found))).ref.path == "default/controller"


@pytest.mark.parametrize(
    ("written", "created"),
    [
        ("2024-03-01T10:00:00Z", datetime(2024, 3, 1, 10, tzinfo=UTC)),
        ('"2024-03-01T10:00:00Z"', datetime(2024, 3, 1, 10, tzinfo=UTC)),
        ("null", None),
    ],
)
def test_the_creation_time(tmp_path: Path, written: str, created: datetime | None) -> None:
    """YAML's own idea of a date does not get in between; null as `kubectl create --dry-run` prints it."""
    text = f"""\
kind: Service
metadata: {{name: a, creationTimestamp: {written}}}
spec: {{type: LoadBalancer}}
"""
    assert only_service(read(tmp_path, text)).created == created


def test_what_detection_needs_of_service_and_node_is_read(tmp_path: Path) -> None:
    """Class, externalIPs and the cloud's name for the node; an invalid address is reported."""
    text = """\
kind: Service
metadata: {name: lb, namespace: ingress}
spec:
  type: LoadBalancer
  loadBalancerClass: service.k8s.aws/nlb
  internalTrafficPolicy: Local
  externalIPs: [203.0.113.7, nonsense, "2001:db8::7"]
---
kind: Node
metadata: {name: node1}
spec: {providerID: "hcloud://4711"}
"""
    snapshot = read(tmp_path, text)
    found = only_service(snapshot)
    assert found.load_balancer_class == "service.k8s.aws/nlb"
    assert found.local_only
    assert [str(address) for address in found.external_ips] == ["203.0.113.7", "2001:db8::7"]
    assert found.problems == ("spec.externalIPs: 'nonsense' is not an IP address",)
    assert snapshot.node is not None
    assert snapshot.node.provider_id == "hcloud://4711"


def test_the_hosts_of_an_ingress_are_those_of_its_tls_and_its_rules(tmp_path: Path) -> None:
    """Each once, as written, in their order; empty ones are the catch-all and no name."""
    spec = {
        "ingressClassName": "nginx",
        "tls": [{"hosts": ["b.example.com", "A.example.com", ""]}, {"secretName": "s"}, {"hosts": None}],
        "rules": [{"host": "c.example.com"}, {"http": {}}, {"host": "b.example.com"}, {"host": ""}],
    }
    (found,) = read(tmp_path, json.dumps(ingress(**spec))).ingresses
    assert found.hosts == ("b.example.com", "A.example.com", "c.example.com")
    assert (found.ref.path, found.class_name) == ("web/site", "nginx")


def test_of_an_ingress_only_the_annotations_that_decide_are_kept(tmp_path: Path) -> None:
    """Controllers write others all the time, and none of those is a change."""
    ours = {"nodeagent.io/exclude": "true", "kubernetes.io/ingress.class": "nginx"}
    found = ingress(rules=[{"host": "a.example.com"}])
    found["metadata"]["annotations"] = {**ours, "cert-manager.io/issuer": "letsencrypt"}
    (read_back,) = read(tmp_path, json.dumps(found)).ingresses
    assert read_back.annotations == ours


def test_an_ingress_class_is_read_with_its_controller_and_whether_it_is_the_default(tmp_path: Path) -> None:
    """Only the word `true` makes a default, as the API server has it."""
    text = "\n---\n".join(
        f"""\
kind: IngressClass
apiVersion: networking.k8s.io/v1
metadata: {{name: {name}, annotations: {{ingressclass.kubernetes.io/is-default-class: "{default}"}}}}
spec: {{controller: k8s.io/ingress-nginx}}"""
        for name, default in (("nginx", "true"), ("internal", "True"))
    )
    assert read(tmp_path, text).ingress_classes == (
        IngressClass("nginx", "k8s.io/ingress-nginx", default=True),
        IngressClass("internal", "k8s.io/ingress-nginx"),
    )


_GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
_EG = "gateway.envoyproxy.io/owning-gateway"


@pytest.mark.parametrize(
    ("namespace", "labels", "expected"),
    [
        # Envoy Gateway in its own namespace, for Gateways of any.
        ("envoy-gateway-system", {f"{_EG}-name": "public", f"{_EG}-namespace": "infra"}, ("public", "infra")),
        # In the Gateway's namespace, it sets both kinds (1.5 and later).
        (
            "infra",
            {f"{_EG}-name": "public", f"{_EG}-namespace": "infra", _GATEWAY_NAME: "public"},
            ("public", ""),
        ),
        # NGINX Gateway Fabric, Istio, Cilium and others: in the Gateway's namespace.
        ("infra", {_GATEWAY_NAME: "public"}, ("public", "")),
        # Merged Gateways have the name of their class alone.
        ("envoy-gateway-system", {"gateway.envoyproxy.io/owning-gatewayclass": "eg"}, (None, "")),
        ("envoy-gateway-system", {f"{_EG}-name": "public"}, (None, "")),
        ("envoy-gateway-system", {f"{_EG}-name": "", f"{_EG}-namespace": "infra"}, (None, "")),
        # Another tenant's Service for the Gateway of others.
        ("tenant", {f"{_EG}-name": "public", f"{_EG}-namespace": "infra"}, (None, "")),
        ("infra", {}, (None, "")),
    ],
)
def test_whose_gateway_a_service_was_made_for(
    tmp_path: Path, namespace: str, labels: dict[str, str], expected: tuple[str | None, str]
) -> None:
    """As each implementation labels it; no namespace can say so of another one's, but Envoy Gateway's own."""
    found = load_balancer()
    found["metadata"] |= {"labels": labels, "namespace": namespace}
    service = only_service(read(tmp_path, json.dumps(found)))
    assert (service.gateway, service.gateway_namespace) == expected


def node(name: str, **spec: object) -> dict[str, Any]:
    """A Node as the API gives it."""
    addresses = [
        {"type": "InternalIP", "address": "198.51.100.1"},
        {"type": "InternalIP", "address": "2001:db8:1::1"},
        {"type": "ExternalIP", "address": "203.0.113.1"},
        {"type": "Hostname", "address": name},
        {"type": "InternalDNS", "address": f"{name}.internal"},
    ]
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"addresses": addresses}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:244::/64"]},
            ["10.244.1.0/24", "fd00:244::/64"],
        ),
        ({"podCIDR": "10.244.1.0/24"}, ["10.244.1.0/24"]),
    ],
)
def test_the_node_of_that_name_is_taken(tmp_path: Path, spec: dict[str, object], expected: list[str]) -> None:
    """Its pod ranges, also from before dual stack, its own addresses and names."""
    nodes = [node("node2"), node("node1", **spec)]
    found = read(tmp_path, json.dumps({"kind": "NodeList", "items": nodes})).node
    assert found is not None
    assert [str(network) for network in found.pod_cidrs] == expected
    assert found.addresses == (ip_address("198.51.100.1"), ip_address("2001:db8:1::1"))
    assert found.external_addresses == (ip_address("203.0.113.1"),)
    assert found.names == ("node1", "node1.internal")


def test_a_node_with_a_pod_range_that_is_none_is_named(tmp_path: Path) -> None:
    """Its pods would silently go unserved."""
    snapshot = read(tmp_path, json.dumps(node("node1", podCIDRs=["10.244.1.0/24", "pods"])))
    assert snapshot.node is None
    (entry,) = snapshot.unreadable
    assert entry.where.endswith("Node node1")
    assert "spec.podCIDRs: 'pods'" in entry.reason


def test_a_pipe_is_read_as_a_file(tmp_path: Path) -> None:
    """`--manifests <(kubectl get ... -o yaml)`."""
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_text, args=(json.dumps(load_balancer()),))
    writer.start()
    assert names(read_manifests(tmp_path / "pipe", "node1")) == ["controller"]
    writer.join()


def test_only_manifests_of_the_directory_itself_are_read(tmp_path: Path) -> None:
    """Neither other suffixes nor folders below, as kubectl does."""
    (tmp_path / "below").mkdir()
    for place in ("a.yaml", "b.yml", "c.json", "README.md", "d.yaml.bak", "below/e.yaml"):
        (tmp_path / place).write_text(json.dumps(load_balancer(place[0])), encoding="utf-8")
    assert names(read_manifests(tmp_path, "node1")) == ["a", "b", "c"]


def test_one_file_may_be_named_instead(tmp_path: Path) -> None:
    """Whatever its suffix."""
    file = tmp_path / "dump"
    file.write_text(json.dumps(load_balancer("one")), encoding="utf-8")
    assert names(read_manifests(file, "node1")) == ["one"]
