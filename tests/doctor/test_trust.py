"""Whom an ingress controller has to believe: each node by its own address, and no range."""

from pathlib import Path

from nodeagent.doctor.policy import trust_finding
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.questions import ask_cluster
from tests.apiserver import ApiServer, objects
from tests.cli.command_line import Ask


def _fill(api: ApiServer, nodes: int, *, annotation: str = "true") -> None:
    key = "service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol"
    made = []
    for number in range(nodes):
        node = objects.node(f"node{number}")
        node["status"] = {
            "addresses": [
                {"type": "InternalIP", "address": f"10.110.{number // 200}.{number % 200 + 1}"},
                {"type": "ExternalIP", "address": f"203.0.113.{number % 200 + 1}"},
                {"type": "Hostname", "address": f"node{number}"},
            ]
        }
        made.append(node)
    made[0]["status"]["addresses"].append({"type": "InternalIP", "address": "fd00:110::1"})
    balancer = objects.load_balancer(
        "web", "ingress", addresses=["203.0.113.250"], annotations={key: annotation}
    )
    api.store.create_many([*made, balancer])


def _found(ask: Ask) -> list[dict[str, object]]:
    document = ask("doctor", "--from", "nowhere", "--node", "node0", "-o", "json").document
    return [one for one in document["findings"] if one["check"] == "trust"]


def test_the_doctor_prints_the_nodes_own_addresses_to_paste(api: ApiServer, ask: Ask) -> None:
    _fill(api, 3)
    (found,) = _found(ask)
    assert (found["code"], found["verdict"]) == ("TrustTheNodes", "pass")
    assert isinstance(found["evidence"], list)
    listed = "10.110.0.1/32,10.110.0.2/32,10.110.0.3/32,fd00:110::1/128"
    trusted = ", ".join(f"{{type: CIDR, value: {cidr}}}" for cidr in listed.split(","))
    assert found["evidence"][:5] == [
        f'ingress-nginx: proxy-real-ip-cidr: "{listed}"',
        f'NGINX Ingress Controller (F5): set-real-ip-from: "{listed}"',
        f"Traefik: --entryPoints.NAME.proxyProtocol.trustedIPs={listed}",
        f'HAProxy (haproxytech): proxy-protocol: "{listed}"',
        f"NGINX Gateway Fabric: rewriteClientIP: {{mode: ProxyProtocol, trustedAddresses: [{trusted}]}}",
    ]
    assert any("externalTrafficPolicy: Cluster" in line for line in found["evidence"])


def test_nothing_is_said_where_no_load_balancer_sends_proxy(api: ApiServer, ask: Ask) -> None:
    _fill(api, 1, annotation="false")
    assert _found(ask) == []


def test_for_a_large_cluster_the_list_says_that_it_is_incomplete(api: ApiServer, tmp_path: Path) -> None:
    _fill(api, 300)
    with connect(api.write_kubeconfig(tmp_path / "kubeconfig")) as connection:
        nodes = ask_cluster(connection, "node0").nodes
    assert nodes is not None
    assert len(nodes.addresses) == 251
    assert nodes.nodes_left == 50
    assert len(nodes.external) == 200
    evidence = trust_finding(nodes).evidence
    assert any(line.startswith("50 more nodes are missing here") for line in evidence)
    assert evidence[4].startswith("NGINX Gateway Fabric: it takes 64 addresses at most")
