"""The world is a fair proving ground: outside works, inside fails as in a real cluster, a relay heals it."""

from __future__ import annotations

import json
import time
from ipaddress import ip_network
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.testbed import addresses
from tests.testbed.cluster_objects import write_manifests
from tests.testbed.errors import WorldError
from tests.testbed.fixtures import needs_root
from tests.testbed.relay_by_hand import relay_by_hand
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.waiting import wait_until
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG

if TYPE_CHECKING:
    from pathlib import Path

    from tests.testbed.node import Node
    from tests.testbed.oci_image import Image
    from tests.testbed.world import World

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


@pytest.mark.parametrize("name", ["node1", "pod1"])
def test_the_cluster_ip_reaches_every_endpoint(world: World, name: str) -> None:
    host = next(host for host in world.hosts if host.name == name)
    for cluster_ip in world.service.cluster_ips:
        before = [len(controller.accesses()) for controller in world.ingress]
        for _ in range(100):
            answer = host.curl(URLS[1], resolve=cluster_ip, proxy_protocol=True)
            assert answer.ok, answer
            counts = [len(controller.accesses()) for controller in world.ingress]
            if all(count > earlier for count, earlier in zip(counts, before, strict=True)):
                break
        else:
            pytest.fail(f"{cluster_ip} reached one pod alone, a hundred times")


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


def test_a_relay_heals_the_node_and_its_pod(world: World, image: Image, tmp_path: Path) -> None:
    copied = world.tmp / f"copied-{tmp_path.name}"
    with relay_by_hand(world, world.node1, tmp_path):
        for host in (world.node1, world.pod1):
            for url, family in product(URLS, world.families):
                answer = host.curl(url, extra=[f"-{family}"])
                assert answer.ok, answer
                assert answer.body.startswith(f"client={world.address(host, family)} ")
        assert world.node2.curl(URLS[0]).cut
        pulled = world.node1.pull(image)
        assert pulled.ok, pulled.stderr
        world.node1.containers.remove(image)
        copy = world.node1.skopeo_copy(image, str(copied))
        assert copy.ok, copy.stderr
    assert world.node1.curl(URLS[0]).cut
    assert not world.node1.pull(image).ok


def test_a_node_can_be_given_a_hosts_file_that_containerd_reads(world: World, image: Image) -> None:
    before = world.node1.read_hosts()
    lb = world.address(world.lb)
    world.node1.write_hosts(before + f"{lb} {addresses.REGISTRY}\n".encode())
    try:
        pulled = world.node1.pull(image)
        assert not pulled.ok
        assert f"{addresses.bracketed(lb)}:443: connect: connection refused" in pulled.stderr
    finally:
        world.node1.write_hosts(before)
    assert world.node2.read_hosts() != before


def test_a_service_can_go_and_come_back(world: World) -> None:
    kube_proxy = world.node1.kube_proxy
    kube_proxy.remove(INGRESS_SERVICE.key)
    try:
        # Without the short circuit the packets leave for the load balancer, as from anywhere. It sends every
        # other connection to this node, which has no NodePort now, until its health check fails.
        wait_until(lambda: world.node1.curl(URLS[0]).ok, "the load balancer answering the node")
    finally:
        kube_proxy.add(world.service)
    assert world.node1.curl(URLS[0]).cut


def test_a_sync_changes_nothing(world: World) -> None:
    before = _rules(world.node1)
    world.node1.kube_proxy.sync()
    assert _rules(world.node1) == before


def test_traffic_can_arrive_at_a_node_from_outside(world: World) -> None:
    with world.client_through(world.node1):
        for family in world.families:
            assert world.client.curl(URLS[0], extra=[f"-{family}"]).cut
            answer = world.client.curl(URLS[0], proxy_protocol=True, extra=[f"-{family}"])
            assert answer.ok, answer
            assert answer.body.startswith(f"client={world.address(world.client, family)} ")


def test_dns_answers_can_be_changed(world: World) -> None:
    usual = dict.fromkeys(addresses.NAMES, world.service.load_balancer_ips)
    other = tuple(world.address(world.node2, family) for family in world.families)
    world.dns.set_records({addresses.SITE: other})
    try:
        found = world.pod1.run(["getent", "ahosts", addresses.SITE]).stdout
        assert {line.split()[0] for line in found.splitlines()} == {str(address) for address in other}
        assert world.pod1.run(["getent", "hosts", addresses.REGISTRY], check=False).returncode != 0
    finally:
        world.dns.set_records(usual)


def test_etc_of_a_host_allows_rename(world: World) -> None:
    before = world.node1.read_hosts()
    world.node1.run(["sh", "-ec", "cp -p /etc/hosts /etc/hosts.new; mv /etc/hosts.new /etc/hosts"])
    assert world.node1.read_hosts() == before


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


def _rules(node: Node) -> list[str]:
    """List a node's rules, without counters and dates."""
    lines = [
        line for command in node.kube_proxy.save_commands() for line in node.run(command).stdout.splitlines()
    ]
    return [line.partition("[")[0] for line in lines if not line.startswith("#")]
