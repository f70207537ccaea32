"""The world is a fair proving ground: outside works, inside fails as in a real cluster, a relay heals it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.testbed import addresses
from tests.testbed.errors import WorldError
from tests.testbed.fixtures import needs_root
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.waiting import wait_until
from tests.testbed.world import MANIFESTS, NODEAGENT_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.testbed.namespaces import Host
    from tests.testbed.node import Node
    from tests.testbed.oci_image import Image
    from tests.testbed.world import World

pytestmark = needs_root

URLS = (
    f"http://{addresses.SITE}/",
    f"https://{addresses.SITE}/",
    f"https://{addresses.ANOTHER}:8443/",
)
RELAY = "169.254.66.5"
PORTS = tuple(port.port for port in INGRESS_SERVICE.ports)


@pytest.fixture(scope="module")
def image(world: World) -> Image:
    """An image of a few layers' worth of time, pulled by several tests."""
    return world.push_image(8)


@pytest.mark.parametrize("url", URLS)
def test_outside_works_and_the_true_address_arrives(world: World, url: str) -> None:
    answer = world.client.curl(url)
    assert answer.ok, answer
    assert answer.body.startswith(f"client={addresses.CLIENT} ")


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("name", ["node1", "node2", "pod1", "pod2"])
def test_inside_is_cut_for_want_of_the_proxy_line(world: World, name: str, url: str) -> None:
    host = next(host for host in world.hosts if host.name == name)
    before = len(world.broken_headers())
    answer = host.curl(url)
    assert answer.cut, answer
    wait_until(lambda: len(world.broken_headers()) > before, "nginx logging a broken header")
    answer = host.curl(url, proxy_protocol=True)
    assert answer.ok, answer
    assert answer.body.startswith(f"client={_place(name)} ")


@pytest.mark.parametrize("name", ["node1", "pod1"])
def test_the_cluster_ip_reaches_every_endpoint(world: World, name: str) -> None:
    host = next(host for host in world.hosts if host.name == name)
    before = [len(controller.accesses()) for controller in world.ingress]

    def both_reached() -> bool:
        answer = host.curl(URLS[1], resolve=addresses.INGRESS_CLUSTER_IP, proxy_protocol=True)
        assert answer.ok, answer
        return all(
            len(controller.accesses()) > count
            for controller, count in zip(world.ingress, before, strict=True)
        )

    wait_until(both_reached, "both pods having answered")


def test_pulls_fail_on_a_node(world: World, image: Image) -> None:
    for pulled in (world.node1.pull(image), world.node1.skopeo_inspect(image)):
        assert not pulled.ok
        assert "connection reset" in pulled.stderr or "EOF" in pulled.stderr


def test_a_relay_heals_the_node_and_its_pod(world: World, image: Image, tmp_path: Path) -> None:
    copied = world.tmp / f"copied-{tmp_path.name}"
    with _relay(world.node1, tmp_path):
        for host in (world.node1, world.pod1):
            for url in URLS:
                answer = host.curl(url)
                assert answer.ok, answer
                assert answer.body.startswith(f"client={_place(host.name)} ")
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
    world.node1.write_hosts(before + f"{addresses.LB} {addresses.REGISTRY}\n".encode())
    try:
        pulled = world.node1.pull(image)
        assert not pulled.ok
        assert f"{addresses.LB}:443: connect: connection refused" in pulled.stderr
    finally:
        world.node1.write_hosts(before)
    assert world.node2.read_hosts() != before


def test_a_service_can_go_and_come_back(world: World) -> None:
    kube_proxy = world.node1.kube_proxy
    kube_proxy.remove(INGRESS_SERVICE.key)
    try:
        # Without the short circuit the packets leave for the load balancer, as from anywhere.
        answer = world.node1.curl(URLS[0])
        assert answer.ok, answer
    finally:
        kube_proxy.add(INGRESS_SERVICE)
    assert world.node1.curl(URLS[0]).cut


def test_a_sync_changes_nothing(world: World) -> None:
    before = _rules(world.node1)
    world.node1.kube_proxy.sync()
    assert _rules(world.node1) == before


def test_traffic_can_arrive_at_a_node_from_outside(world: World) -> None:
    with world.client_through(world.node1):
        assert world.client.curl(URLS[0]).cut
        answer = world.client.curl(URLS[0], proxy_protocol=True)
        assert answer.ok, answer
        assert answer.body.startswith(f"client={addresses.CLIENT} ")


def test_dns_answers_can_be_changed(world: World) -> None:
    usual = dict.fromkeys(addresses.NAMES, addresses.LOAD_BALANCER_IPS)
    world.dns.set_records({addresses.SITE: (addresses.NODE2,)})
    try:
        found = world.pod1.run(["getent", "ahostsv4", addresses.SITE]).stdout
        assert found.split()[0] == str(addresses.NODE2)
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


def test_the_manifests_describe_this_world() -> None:
    documents = [
        document
        for path in sorted(MANIFESTS.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]
    (service,) = (document for document in documents if document["kind"] == "Service")
    assert service["metadata"]["namespace"] == INGRESS_SERVICE.namespace
    assert service["metadata"]["name"] == INGRESS_SERVICE.name
    assert service["spec"]["clusterIPs"] == [str(INGRESS_SERVICE.cluster_ip)]
    assert [
        (port["name"], port["port"], port["nodePort"], port["targetPort"])
        for port in service["spec"]["ports"]
    ] == [(port.name, port.port, port.node_port, port.target_port) for port in INGRESS_SERVICE.ports]
    assert [entry["ip"] for entry in service["status"]["loadBalancer"]["ingress"]] == [
        str(address) for address in INGRESS_SERVICE.load_balancer_ips
    ]
    hosts = {rule["host"] for d in documents if d["kind"] == "Ingress" for rule in d["spec"]["rules"]}
    assert hosts == {addresses.SITE, addresses.REGISTRY}
    nodes = {d["metadata"]["name"]: d for d in documents if d["kind"] == "Node"}
    assert nodes["node1"]["spec"]["podCIDRs"] == [str(addresses.POD_CIDR1)]
    assert nodes["node2"]["spec"]["podCIDRs"] == [str(addresses.POD_CIDR2)]
    assert nodes["node1"]["status"]["addresses"][0]["address"] == str(addresses.NODE1)
    config = yaml.safe_load(NODEAGENT_CONFIG.read_text(encoding="utf-8"))
    assert config["loadBalancers"]["services"][0]["name"] == INGRESS_SERVICE.name


def _place(name: str) -> addresses.Address:
    return next(place.address for place in addresses.PLACES if place.host == name)


def _rules(node: Node) -> list[str]:
    """List a node's rules, without counters and dates."""
    kind = node.kube_proxy.kind
    command = ["nft", "list", "ruleset"] if kind == "nftables" else [f"{kind}-save", "-t", "nat"]
    lines = node.run(command).stdout.splitlines()
    return [line.partition("[")[0] for line in lines if not line.startswith("#")]


@contextmanager
def _relay(host: Host, directory: Path) -> Iterator[None]:
    """Do by hand what nodeagent is to do: a relay address, HAProxy on it, DNAT to it before kube-proxy."""
    configuration = [
        "defaults",
        "  mode tcp",
        "  timeout connect 3s",
        "  timeout client 1m",
        "  timeout server 1m",
    ]
    for port in PORTS:
        configuration += [
            f"listen relay-{port}",
            f"  bind {RELAY}:{port}",
            f"  server ingress {addresses.INGRESS_CLUSTER_IP}:{port} send-proxy",
        ]
    file = directory / "relay.cfg"
    file.write_text("\n".join(configuration) + "\n", encoding="ascii")
    elements = ", ".join(f"{addresses.LOAD_BALANCER_IP} . {port} : {RELAY} . {port}" for port in PORTS)
    dnat = "meta l4proto tcp dnat ip to ip daddr . tcp dport map @lb4"
    table = f"""\
table inet hand {{
    map lb4 {{
        type ipv4_addr . inet_service : ipv4_addr . inet_service
        elements = {{ {elements} }}
    }}
    chain output {{
        type nat hook output priority -105
        {dnat}
    }}
    chain prerouting {{
        type nat hook prerouting priority -105
        ip saddr {addresses.POD_CIDR1} {dnat}
    }}
}}
"""
    host.run(["ip", "address", "add", f"{RELAY}/32", "dev", "lo"])
    haproxy = host.popen(["haproxy", "-db", "-f", file], log="relay")
    try:
        for port in PORTS:
            host.await_port(port, haproxy)
        host.run(["nft", "-f", "-"], stdin=table)
        yield
        host.run(["nft", "delete", "table", "inet", "hand"])
    finally:
        haproxy.stop()
        host.run(["ip", "address", "del", f"{RELAY}/32", "dev", "lo"])
