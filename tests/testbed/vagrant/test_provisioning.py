"""The provisioning scripts, run on machines without the internet as far as they get; and what they set up."""

from __future__ import annotations

import base64
import hashlib
import json
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.testbed.addresses import REGISTRY, SITE
from tests.testbed.fixtures import needs_root
from tests.testbed.http import curl_command, curl_result
from tests.testbed.services import INGRESS_SERVICE
from tests.testbed.vagrant.manifests import REGISTRY_CLUSTER_IP
from tests.testbed.vagrant.render import settings
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import CompletedProcess

    from tests.testbed.http import CurlResult
    from tests.testbed.vagrant.machine_root import MachineRoot

pytestmark = needs_root

_PINNED = settings({})
_NODE1 = "192.168.56.21"
_CONFIG = "/etc/rancher/k3s/config.yaml"
_IMAGES = "/var/lib/rancher/k3s/agent/images"
_K3S = "#!/bin/sh\n# Stands for k3s, which a machine without the internet can't fetch.\nexec sleep infinity\n"
_IMAGE = "an image\n"
_MIRROR = "http://127.0.0.1:8001"


@pytest.fixture(scope="module")
def lb(machines: Mapping[str, MachineRoot]) -> MachineRoot:
    """The machine lb, provisioned for one node, with what it was asked to start."""
    machine = machines["lb"]
    _succeeds(machine.provision("lb.sh", NODES="1"))
    machine.host.await_port(53, machine.start_unit("testbed-dns.service"), protocol="udp")
    # As haproxy.service starts it, but in the foreground.
    haproxy = machine.start(["haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg"], "haproxy")
    machine.host.await_port(443, haproxy)
    return machine


@pytest.fixture(scope="module")
def cp(machines: Mapping[str, MachineRoot]) -> MachineRoot:
    """The machine cp with k3s' server; one image replaces those that images.sh would have built."""
    machine = machines["cp"]
    _mirror(machine)
    _succeeds(machine.provision("files.sh"))
    machine.host.await_port(8000, machine.start_unit("testbed-files.service"))
    machine.write("/srv/testbed/nodeagent.tar", _IMAGE)
    machine.write("/srv/testbed/SHA256SUMS", f"{_digest(_IMAGE)}  nodeagent.tar\n")
    _succeeds(_k3s(machine, "server", "cp", _PINNED["CP_ADDRESS"]))
    return machine


@pytest.fixture(scope="module")
def node1(machines: Mapping[str, MachineRoot], cp: MachineRoot) -> MachineRoot:
    """The machine node1 with k3s' agent."""
    machine = machines["node1"]
    _mirror(machine)
    _succeeds(_k3s(machine, "agent", "node1", _NODE1))
    return machine


def test_a_name_of_the_testbed_leads_through_the_load_balancer_to_the_ingress_controller(
    lb: MachineRoot, cp: MachineRoot, node1: MachineRoot
) -> None:
    """By the node's resolver, lb's DNS server, HAProxy, a NodePort, and nginx as the cluster runs it."""
    _start_ingress_controller(node1, cp)
    urls = (f"http://{SITE}/", f"https://{SITE}/", f"https://{SITE}:8443/")
    wait_until(lambda: all(_curl(node1, url).ok for url in urls), "HAProxy finding the node up again")
    for url in urls:
        answer = _curl(node1, url)
        assert answer.ok, answer
        assert answer.body.startswith(f"client={_NODE1} host={SITE}")
        direct = _curl(lb, url, resolve=_NODE1)
        assert direct.cut, "nginx takes nothing without the PROXY line"


def test_names_that_are_not_the_testbeds_are_asked_for_elsewhere(lb: MachineRoot, node1: MachineRoot) -> None:
    lb.write("/etc/resolv.conf", f"nameserver {_PINNED['CP_ADDRESS']}\n")
    before = node1.run(["getent", "ahostsv4", "nothing.example.test"], check=False)
    assert (before.returncode, before.stdout) == (2, "")
    assert _PINNED["LB_ADDRESS"] in node1.run(["getent", "ahostsv4", SITE]).stdout
    log = lb.host.log_file("testbed-dns.service").read_text("utf-8")
    assert "config nothing.example.test is NXDOMAIN" in log


def test_the_server_is_configured_for_the_manifests_of_the_namespaces(cp: MachineRoot) -> None:
    config = yaml.safe_load(cp.read(_CONFIG))
    assert config == {
        "node-name": "cp",
        "node-ip": _PINNED["CP_ADDRESS"],
        "advertise-address": _PINNED["CP_ADDRESS"],
        "tls-san": [_PINNED["CP_ADDRESS"]],
        "flannel-iface": "eth1",
        "token": "testbed",
        "kube-proxy-arg": ["proxy-mode=nftables"],
        "cluster-cidr": "10.244.0.0/16",
        "service-cidr": "10.96.0.0/16",
        "cluster-dns": "10.96.0.2",
        "disable": ["traefik", "servicelb", "metrics-server", "local-storage"],
        "node-taint": ["node-role.kubernetes.io/control-plane=true:NoSchedule"],
    }
    taken = {str(INGRESS_SERVICE.cluster_ip), str(REGISTRY_CLUSTER_IP)}
    assert config["cluster-dns"] not in taken
    assert all(ip_address(address) in ip_network(config["service-cidr"]) for address in taken)
    _check_k3s(cp, "k3s.service")


def test_a_node_joins_with_what_cp_serves(node1: MachineRoot) -> None:
    config = yaml.safe_load(node1.read(_CONFIG))
    assert config == {
        "node-name": "node1",
        "node-ip": _NODE1,
        "flannel-iface": "eth1",
        "token": "testbed",
        "kube-proxy-arg": ["proxy-mode=nftables"],
        "server": f"https://{_PINNED['CP_ADDRESS']}:6443",
    }
    assert node1.read("/etc/resolv.conf") == f"nameserver {_PINNED['LB_ADDRESS']}\n"
    trusted = yaml.safe_load(node1.read("/etc/rancher/k3s/registries.yaml"))
    authority = trusted["configs"][REGISTRY]["tls"]["ca_file"]
    node1.run(["openssl", "x509", "-noout", "-in", authority])
    assert node1.read(f"{_IMAGES}/nodeagent.tar") == _IMAGE
    _check_k3s(node1, "k3s-agent.service")


@pytest.mark.parametrize("mode", ["iptables", "ipvs"])
def test_kube_proxys_mode_is_chosen(node1: MachineRoot, mode: str) -> None:
    before = node1.read(_CONFIG)
    _succeeds(_k3s(node1, "agent", "node1", _NODE1, KUBE_PROXY_MODE=mode))
    config = yaml.safe_load(node1.read(_CONFIG))
    node1.write(_CONFIG, before)
    assert config["kube-proxy-arg"] == [f"proxy-mode={mode}"]


def test_provisioning_again_changes_nothing(lb: MachineRoot, cp: MachineRoot, node1: MachineRoot) -> None:
    def changes() -> list[str]:
        return [machine.changes() for machine in (lb, cp, node1)]

    first = changes()
    assert "./etc/haproxy/haproxy.cfg" in first[0]
    assert "./usr/local/bin/k3s" in first[2]
    _succeeds(lb.provision("lb.sh", NODES="1"))
    _succeeds(cp.provision("files.sh"))
    _succeeds(_k3s(cp, "server", "cp", _PINNED["CP_ADDRESS"]))
    _succeeds(_k3s(node1, "agent", "node1", _NODE1))
    assert changes() == first


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"K3S_SHA256": "0" * 64}, f"expected sha256 {'0' * 64}, found"),
        ({"K3S_SHA256": ""}, "no SHA-256 is pinned for http://127.0.0.1:8001/v1"),
        ({"K3S_VERSION": "v0.0.0+k3s1"}, "/v0.0.0%2Bk3s1/k3s could not be fetched"),
    ],
)
def test_what_is_not_what_was_pinned_is_not_installed(
    node1: MachineRoot, variables: Mapping[str, str], complaint: str
) -> None:
    node1.run(["mv", "/usr/local/bin/k3s", "/root/saved"])
    try:
        refused = _k3s(node1, "agent", "node1", _NODE1, **variables)
        assert refused.returncode == 1
        assert complaint in refused.stderr
        assert node1.run(["ls", "/usr/local/bin"]).stdout.count("k3s") == 0
    finally:
        node1.run(["mv", "/root/saved", "/usr/local/bin/k3s"])


def test_a_damaged_image_is_not_installed(cp: MachineRoot, node1: MachineRoot) -> None:
    cp.write("/srv/testbed/nodeagent.tar", "half an im")
    node1.run(["rm", f"{_IMAGES}/nodeagent.tar"])
    try:
        refused = _k3s(node1, "agent", "node1", _NODE1)
        assert refused.returncode == 1
        assert "nodeagent.tar: expected sha256" in refused.stderr
        assert node1.run(["ls", _IMAGES]).stdout == ""
    finally:
        cp.write("/srv/testbed/nodeagent.tar", _IMAGE)
        node1.write(f"{_IMAGES}/nodeagent.tar", _IMAGE)


@pytest.mark.parametrize(
    ("role", "variables", "complaint"),
    [
        ("master", {}, "usage: k3s.sh server|agent"),
        ("agent", {"KUBE_PROXY_MODE": "ebpf"}, "KUBE_PROXY_MODE is nftables, iptables or ipvs, not ebpf"),
        ("agent", {"NODE_ADDRESS": "192.168.56.99"}, "no interface has the address 192.168.56.99"),
    ],
)
def test_a_wrong_call_says_what_is_right(
    node1: MachineRoot, role: str, variables: dict[str, str], complaint: str
) -> None:
    refused = node1.provision("k3s.sh", role, **{"NODE_NAME": "node1", "NODE_ADDRESS": _NODE1} | variables)
    assert refused.returncode == 1
    assert complaint in refused.stderr


def _succeeds(done: CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


def _k3s(machine: MachineRoot, role: str, name: str, address: str, **variables: str) -> CompletedProcess[str]:
    named = {"NODE_NAME": name, "NODE_ADDRESS": address}
    return machine.provision(
        "k3s.sh", role, **{"K3S_URL": _MIRROR, "K3S_SHA256": _digest(_K3S)} | named | variables
    )


def _mirror(machine: MachineRoot) -> None:
    """Serve a file in place of k3s, as its releases are served."""
    machine.write(f"/mirror/{_PINNED['K3S_VERSION']}/k3s", _K3S)
    server = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", "/mirror", "8001"]
    machine.host.await_port(8001, machine.start(server, "mirror"))


def _check_k3s(machine: MachineRoot, unit: str) -> None:
    """The program is there, and systemd would start it at the next boot."""
    assert machine.read("/usr/local/bin/k3s") == _K3S
    assert machine.run(["stat", "--format=%a", "/usr/local/bin/k3s"]).stdout == "755\n"
    assert machine.run(["stat", "--format=%a", _CONFIG]).stdout == "600\n"
    assert machine.run(["systemctl", "is-enabled", unit]).stdout == "enabled\n"
    verified = machine.run(["systemd-analyze", "verify", f"/etc/systemd/system/{unit}"])
    assert verified.stdout + verified.stderr == ""


def _start_ingress_controller(node: MachineRoot, cp: MachineRoot) -> None:
    """Run nginx as the manifests have it, and lead the NodePorts to it as kube-proxy does."""
    script = "/etc/testbed/certificates"
    listed = cp.run(
        ["python3", "-m", "tests.testbed.vagrant.manifests", script], PYTHONPATH="/vagrant"
    ).stdout
    items = {(one["kind"], one["metadata"]["name"]): one for one in json.loads(listed)["items"]}
    node.write("/etc/testbed/nginx/nginx.conf", items["ConfigMap", "nginx"]["data"]["nginx.conf"])
    for name, content in items["Secret", "tls"]["data"].items():
        node.write(f"/etc/testbed/tls/{name}", base64.b64decode(content).decode("ascii"))
    pod = items["Deployment", "ingress-nginx"]["spec"]["template"]["spec"]
    for mount in pod["containers"][0]["volumeMounts"]:
        node.run(["mkdir", "-p", mount["mountPath"]])
    nginx = node.start(pod["containers"][0]["command"], "nginx")
    for port in INGRESS_SERVICE.ports:
        node.host.await_port(port.target_port, nginx)
    redirects = "; ".join(
        f"ip daddr {_NODE1} tcp dport {port.node_port} redirect to :{port.target_port}"
        for port in INGRESS_SERVICE.ports
    )
    node.run(
        ["nft", "-f", "-"],
        stdin=f"table ip nodeports {{ chain c {{ type nat hook prerouting priority -100; {redirects}; }}; }}",
    )


def _curl(machine: MachineRoot, url: str, resolve: str = "") -> CurlResult:
    command = curl_command(url, ip_address(resolve) if resolve else None, None, 10.0, proxy_protocol=False)
    return curl_result(machine.run([*command, url], check=False))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
