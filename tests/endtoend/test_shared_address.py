"""A younger Service publishes the load balancer's own address: what is served already keeps being served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from tests.endtoend.asking import NAMED, assert_served
from tests.endtoend.configuration import configure
from tests.endtoend.matrix import in_two
from tests.testbed.cluster_objects import load_balancer_status

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.agent import Agent
    from tests.testbed.world import World

pytestmark = in_two

_TENANT_PORT = 9443


def test_a_younger_service_on_the_same_address_takes_no_hostname(world: World, agent: Agent) -> None:
    """With its ports and another one, and a name that comes first: neither lines nor redirects move."""
    _date_and_annotate(agent)
    assert agent.apply().exit_code == 0
    assert_served(world, agent.host, *NAMED)
    before = agent.host.read_hosts()
    file = _write_tenant(world, agent.manifests)
    assert agent.apply().exit_code == 0
    assert agent.host.read_hosts() == before
    assert_served(world, agent.host, *NAMED)
    assert_served(world, world.pod1, *NAMED)
    document = agent.status("-o", "json").document
    (mine,) = (each for each in document["loadBalancers"] if each["service"]["namespace"] == "aaa-tenant")
    assert mine["verdict"] == "served", mine
    file.unlink()
    assert agent.apply().exit_code == 0
    assert agent.host.read_hosts() == before


def _date_and_annotate(agent: Agent) -> None:
    """Objects as an API server has them, with creation times; no Service is listed, all by annotation."""
    for file in agent.manifests.iterdir():
        objects = [found for found in yaml.safe_load_all(file.read_text(encoding="utf-8")) if found]
        for found in objects:
            found["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z"
            if found["kind"] == "Service":
                found["metadata"].setdefault("annotations", {})["nodeagent.io/proxy-protocol"] = "v1"
        file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    configure(agent, loadBalancers={"services": []})


def _write_tenant(world: World, manifests: Path) -> Path:
    """A Service whose name comes first, with the victim's address, its ports, and one of its own."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": "aaa-tenant",
            "name": "aaa",
            "creationTimestamp": "2033-01-01T00:00:00Z",
            "annotations": {"nodeagent.io/proxy-protocol": "v2"},
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.77",
            "ports": [{"name": f"p{port}", "port": port} for port in (80, 443, 8443, _TENANT_PORT)],
        },
        "status": load_balancer_status(world.service.load_balancer_ips),
    }
    file = manifests / "tenant.yaml"
    file.write_text(yaml.safe_dump(service), encoding="utf-8")
    return file
