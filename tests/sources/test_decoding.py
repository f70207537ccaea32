import json
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.objects import IngressClass, ServicePort, Snapshot
from tests.cases import cases_of
from tests.sources.test_manifests import ingress, load_balancer, only_service, read

CASES = cases_of(__file__, "cases.yaml")


@pytest.mark.parametrize("status", [None, {}, {"loadBalancer": None}, {"loadBalancer": {"ingress": None}}])
def test_a_status_without_an_address_is_no_error(tmp_path: Path, status: object) -> None:
    assert only_service(read(tmp_path, json.dumps({**load_balancer(), "status": status}))).points == ()


@pytest.mark.parametrize("number", [0, -1, 65536, 10**30])
def test_an_impossible_port_is_left_out_and_named(tmp_path: Path, number: int) -> None:
    service = only_service(read(tmp_path, json.dumps(load_balancer(ports=[{"port": number}, {"port": 443}]))))
    assert service.ports == (ServicePort("", "TCP", 443),)
    assert [each.partition(" is ")[0] for each in service.problems] == [f"spec.ports: {number}"]


@pytest.mark.parametrize(("spec", "found", "problems"), CASES["cluster_ips"])
def test_cluster_ips(tmp_path: Path, spec: dict[str, Any], found: list[str], problems: list[str]) -> None:
    service = only_service(read(tmp_path, json.dumps(load_balancer(**spec))))
    assert [str(address) for address in service.cluster_ips] == found
    assert list(service.problems) == [f"spec.clusterIPs: {problem}" for problem in problems]


@pytest.mark.parametrize(
    "text", ["not-an-ip", "192.0.2.256", "192.0.2.1/32", "192.0.2.01", " 192.0.2.1", "fe80::1%eth0", "1\n"]
)
def test_an_address_that_is_none_is_left_out_and_named(tmp_path: Path, text: str) -> None:
    found = load_balancer()
    found["status"] = {"loadBalancer": {"ingress": [{"ip": text}, {"ip": "192.0.2.1"}]}}
    service = only_service(read(tmp_path, json.dumps(found)))
    assert service.load_balancer_ips == (ip_address("192.0.2.1"),)
    (problem,) = service.problems
    assert problem.startswith(f"status.loadBalancer.ingress[0]: {text!r} ")


@pytest.mark.parametrize("spec_type", ["ClusterIP", "NodePort", "ExternalName", None, "loadbalancer"])
def test_of_services_of_another_type_only_the_cluster_ips_count(tmp_path: Path, spec_type: object) -> None:
    """Without a word: a cluster is full of them. But no load balancer may have their addresses."""
    found = read(tmp_path, json.dumps(load_balancer(type=spec_type)))
    assert found == Snapshot(other_cluster_ips=frozenset({ip_address("10.96.0.7")}))


@pytest.mark.parametrize("written", ["2024-03-01T10:00:00Z", '"2024-03-01T10:00:00Z"', "null"])
def test_the_creation_time(tmp_path: Path, written: str) -> None:
    """YAML's own idea of a date does not get in between; null as `kubectl create --dry-run` prints it."""
    metadata = f"{{name: a, creationTimestamp: {written}}}"
    text = f"kind: Service\nmetadata: {metadata}\nspec: {{type: LoadBalancer}}\n"
    created = only_service(read(tmp_path, text)).created
    assert created == (None if written == "null" else datetime(2024, 3, 1, 10, tzinfo=UTC))


def test_what_detection_needs_of_service_and_node_is_read(tmp_path: Path) -> None:
    snapshot = read(tmp_path, CASES["detected"])
    found = only_service(snapshot)
    assert found.load_balancer_class == "service.k8s.aws/nlb"
    assert found.local_only
    assert [str(address) for address in found.external_ips] == ["203.0.113.7", "2001:db8::7"]
    assert [each.partition(" is ")[0] for each in found.problems] == ["spec.externalIPs: 'nonsense'"]
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
    assert read(tmp_path, CASES["ingress_classes"]).ingress_classes == (
        IngressClass("nginx", "k8s.io/ingress-nginx", default=True),
        IngressClass("internal", "k8s.io/ingress-nginx"),
    )


@pytest.mark.parametrize(("namespace", "labels", "expected"), CASES["gateways"])
def test_whose_gateway_a_service_was_made_for(
    tmp_path: Path, namespace: str, labels: dict[str, str], expected: list[str | None]
) -> None:
    """As each implementation labels it; no namespace can say so of another one's, but Envoy Gateway's own."""
    found = load_balancer()
    found["metadata"] |= {"labels": labels, "namespace": namespace}
    service = only_service(read(tmp_path, json.dumps(found)))
    assert [service.gateway, service.gateway_namespace] == expected


def node(name: str, **spec: object) -> dict[str, Any]:
    addresses = [
        {"type": "InternalIP", "address": "198.51.100.1"},
        {"type": "InternalIP", "address": "2001:db8:1::1"},
        {"type": "ExternalIP", "address": "203.0.113.1"},
        {"type": "Hostname", "address": name},
        {"type": "InternalDNS", "address": f"{name}.internal"},
    ]
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": {"addresses": addresses}}


_RANGES = ["10.244.1.0/24", "fd00:244::/64"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"podCIDR": "10.244.1.0/24", "podCIDRs": [*_RANGES]}, _RANGES),
        ({"podCIDR": "10.244.1.0/24"}, _RANGES[:1]),
    ],
)
def test_the_node_of_that_name_is_taken(tmp_path: Path, spec: dict[str, object], expected: list[str]) -> None:
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
