"""Whom an ingress controller has to believe: each node by its own address, and no range."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

import pytest

from nodeagent.cli.main import run
from nodeagent.doctor.findings import Code
from nodeagent.doctor.policy import trust_finding
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.questions import NodeAddresses, ask_cluster
from tests.apiserver import ApiServer, objects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """A simulated API server."""
    with ApiServer() as server:
        yield server


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


def _found(api: ApiServer, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    kubeconfig = api.write_kubeconfig(folder / "kubeconfig")
    run(["doctor", "--from", "nowhere", "--node", "node0", "--kubeconfig", str(kubeconfig), "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    return [one for one in document["findings"] if one["check"] == "trust"]


def test_the_doctor_prints_the_nodes_own_addresses_to_paste(
    api: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(api, 3)
    (found,) = _found(api, tmp_path, capsys)
    assert (found["code"], found["verdict"]) == ("TrustTheNodes", "pass")
    assert isinstance(found["evidence"], list)
    assert found["evidence"][0] == (
        'proxy-real-ip-cidr: "10.110.0.1/32,10.110.0.2/32,10.110.0.3/32,fd00:110::1/128"'
    )


def test_nothing_is_said_where_no_load_balancer_sends_proxy(
    api: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _fill(api, 1, annotation="false")
    assert _found(api, tmp_path, capsys) == []


def test_for_a_large_cluster_the_list_says_that_it_is_incomplete(api: ApiServer, tmp_path: Path) -> None:
    _fill(api, 300)
    with connect(api.write_kubeconfig(tmp_path / "kubeconfig")) as connection:
        nodes = ask_cluster(connection, "node0").nodes
    assert nodes is not None
    assert len(nodes.addresses) == 251
    assert nodes.nodes_left == 50
    assert "50 more nodes are missing here" in trust_finding(nodes).evidence[1]


def test_every_entry_is_a_single_address() -> None:
    """A range would be believed whole: pods are in it, or a neighbor."""
    addresses = tuple(map(ip_address, ("10.0.0.1", "10.0.0.2", "fd00::1")))
    found = trust_finding(NodeAddresses(addresses))
    assert found.code is Code.TrustTheNodes
    listed = found.evidence[0].removeprefix('proxy-real-ip-cidr: "').removesuffix('"').split(",")
    assert [ip_network(entry).num_addresses for entry in listed] == [1, 1, 1]
