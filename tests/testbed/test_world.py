"""The world is a fair proving ground: outside works, inside fails as in a real cluster, a relay heals it."""

import json
import time
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import addresses
from tests.testbed.cluster_objects import write_manifests
from tests.testbed.errors import WorldError
from tests.testbed.fixtures import needs_root
from tests.testbed.oci_image import Image
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.waiting import wait_until
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG, World

pytestmark = needs_root

URLS = (
    f"http://{addresses.SITE}/",
    f"https://{addresses.SITE}/",
    f"https://{addresses.ANOTHER}:8443/",
)
_KERNELS_NAME = {4: "inet", 6: "inet6"}


@pytest.fixture(scope="module")
def image(world: World) -> Image:
    """An image of a few layers' worth of time, pulled by several tests."""
    return world.push_image(8)


@pytest.mark.parametrize("url", URLS)
def test_outside_works_and_the_true_address_arrives(world: World, url: str) -> None:
    for family in world.families:
        answer = world.client.curl(url, extra=[f"-{family}"])
        assert answer.ok, answer
        assert answer.body.startswith(f"client={world.address(world.client, family)} ")


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("name", ["node1", "node2", "pod1", "pod2"])
def test_inside_is_rejected_because_the_proxy_header_is_missing(world: World, name: str, url: str) -> None:
    host = next(host for host in world.hosts if host.name == name)
    for family in world.families:
        before = len(world.broken_headers())
        answer = host.curl(url, extra=[f"-{family}"])
        assert answer.cut, answer
        wait_until(
            lambda before=before: len(world.broken_headers()) > before,  # type: ignore[misc] # the loop's
            "nginx logging a broken header",
        )
        answer = host.curl(url, proxy_protocol=True, extra=[f"-{family}"])
        assert answer.ok, answer
        assert answer.body.startswith(f"client={world.address(host, family)} ")


@pytest.mark.parametrize("name", ["lb", "client", "node1", "node2", "pod1", "pod2"])
def test_a_host_has_the_families_of_its_world_and_no_other(world: World, name: str) -> None:
    host = next(host for host in world.hosts if host.name == name)
    listed = json.loads(host.run(["ip", "-json", "address"]).stdout)
    found = [address for link in listed for address in link["addr_info"] if link["ifname"] != "lo"]
    assert {address["family"] for address in found} == {_KERNELS_NAME[family] for family in world.families}
    addresses_on_lo = {address["local"] for link in listed for address in link["addr_info"]}
    assert ("::1" in addresses_on_lo) is (6 in world.families)


def test_pulls_fail_on_a_node(world: World, image: Image) -> None:
    for pulled in (world.node1.pull(image), world.node1.skopeo_inspect(image)):
        assert not pulled.ok
        assert "connection reset" in pulled.stderr or "EOF" in pulled.stderr


def test_a_command_that_takes_too_long_dies_with_its_wait(world: World) -> None:
    started = time.monotonic()
    with pytest.raises(WorldError, match="longer than"):
        world.pod2.run(["sleep", "60"], timeout=0.2)
    assert time.monotonic() - started < 5
    wait_until(
        lambda: world.pod2.run(["pgrep", "-x", "sleep"], check=False).returncode != 0, "the sleep having died"
    )


def test_the_manifests_describe_an_ipv4_world(tmp_path: Path) -> None:
    write_manifests(tmp_path, (4,))
    assert _documents(tmp_path) == _documents(MANIFESTS)


def test_the_manifests_describe_this_world(world: World) -> None:
    documents = _documents(world.manifests)
    (service,) = (document for document in documents if document["kind"] == "Service")
    assert service["metadata"]["namespace"] == world.service.namespace
    assert service["metadata"]["name"] == world.service.name
    assert service["spec"]["clusterIP"] == str(world.service.cluster_ip)
    assert service["spec"]["clusterIPs"] == [str(address) for address in world.service.cluster_ips]
    assert service["spec"]["ipFamilies"] == [f"IPv{family}" for family in world.families]
    assert [
        (port["name"], port["port"], port["nodePort"], port["targetPort"])
        for port in service["spec"]["ports"]
    ] == [(port.name, port.port, port.node_port, port.target_port) for port in world.service.ports]
    in_front = [str(address) for address in world.service.load_balancer_ips]
    assert [entry["ip"] for entry in service["status"]["loadBalancer"]["ingress"]] == in_front
    ingresses = [document for document in documents if document["kind"] == "Ingress"]
    assert {rule["host"] for d in ingresses for rule in d["spec"]["rules"]} == {
        addresses.SITE,
        addresses.REGISTRY,
    }
    for ingress in ingresses:
        assert [entry["ip"] for entry in ingress["status"]["loadBalancer"]["ingress"]] == in_front
    nodes = {d["metadata"]["name"]: d for d in documents if d["kind"] == "Node"}
    for node, pod in ((world.node1, world.pod1), (world.node2, world.pod2)):
        ranges = [ip_network(text) for text in nodes[node.name]["spec"]["podCIDRs"]]
        own = [world.address(pod, family) for family in world.families]
        assert [address in network for address, network in zip(own, ranges, strict=True)] == [True] * len(own)
        told = nodes[node.name]["status"]["addresses"]
        assert [entry["address"] for entry in told if entry["type"] == "InternalIP"] == [
            str(world.address(node, family)) for family in world.families
        ]
    config = yaml.safe_load(NODEAGENT_CONFIG.read_text(encoding="utf-8"))
    assert config["loadBalancers"]["services"][0]["name"] == INGRESS_SERVICE.name


def _documents(directory: Path) -> list[dict[str, Any]]:
    return [
        document
        for path in sorted(directory.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
