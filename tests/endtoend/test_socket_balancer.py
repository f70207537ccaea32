"""A node whose connections are rewritten at connect(), before netfilter: what the cilium overlay is for."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest
import yaml

from nodeagent.config.reading import read_config
from nodeagent.coredns.coredns_reconciler import CoreDnsReconciler
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.kubernetes.connection import connect
from nodeagent.sources.kubernetes.single_requests import read_cluster
from tests.apiserver import ApiServer
from tests.apiserver.objects import objects_under
from tests.coredns.cluster import corefile, put
from tests.coredns.real import answer_of
from tests.daemonset.manifests import configuration, deployed
from tests.endtoend.trying import NAMED, agent_on, assert_cut, assert_served, configure
from tests.testbed.addresses import SITE
from tests.testbed.agent import Agent
from tests.testbed.errors import WorldError
from tests.testbed.namespaces import Host
from tests.testbed.services import ServiceRules
from tests.testbed.world import World

_SOURCE = Path(__file__).with_name("socket_balancer.c")
_ATTACH = Path(__file__).with_name("attach.sh").read_text("utf-8")


@contextmanager
def socket_balancer(node: Host, service: ServiceRules, directory: Path) -> Iterator[None]:
    """Rewrite connect() to a Service's IPv4 addresses to its first pod, for what this process starts.

    The node gets Cilium's recognizable trace, its pins in /sys/fs/bpf.
    """
    program = directory / "socket_balancer.o"
    _run(
        *("clang", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{platform.machine()}-linux-gnu"),
        *(f"-DTRANSLATIONS={_translations(service)}", "-c", str(_SOURCE), "-o", str(program)),
    )
    parent = _own_group()
    group = parent / f"nodeagent-test-{os.getpid()}"
    with ExitStack() as stack:
        group.mkdir()
        stack.callback(group.rmdir)  # what is attached goes with it
        _run("unshare", "--mount", "sh", "-c", _ATTACH, "sh", str(program), str(group))
        stack.callback(_move, group, parent)
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
        node.run(["mount", "-t", "bpf", "bpf", "/sys/fs/bpf"])
        stack.callback(node.run, ["umount", "/sys/fs/bpf"])
        node.run(["mkdir", "-p", "/sys/fs/bpf/cilium/socketlb"])
        yield


def _translations(service: ServiceRules) -> str:
    backend = next(address for address in service.endpoints if address.version == 4)
    fronts = [each for each in (*service.cluster_ips, *service.load_balancer_ips) if each.version == 4]
    return ",".join(
        f"{{{int(front)}u,{port.port},{int(backend)}u,{port.target_port}}}"
        for front in fronts
        for port in service.ports
    )


def _own_group() -> Path:
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines()]
    unified = next((words[4] for words in mounts if words[words.index("-") + 1] == "cgroup2"), None)
    if unified is None:
        raise WorldError("no cgroup2 is mounted: there is nothing to attach a program of BPF to")
    own = Path("/proc/self/cgroup").read_text("ascii")
    (path,) = [line.removeprefix("0::") for line in own.splitlines() if line.startswith("0::")]
    return Path(unified, path.lstrip("/"))


def _move(group: Path, parent: Path) -> None:
    for pid in (group / "cgroup.procs").read_text("ascii").split():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            (parent / "cgroup.procs").write_text(pid, encoding="ascii")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise WorldError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    """A world in which node1 has no kube-proxy: the socket load balancer takes its place."""
    with World(kube_proxy="nftables") as standing, ExitStack() as stack:
        standing.node1.kube_proxy.remove(standing.service.key)
        stack.enter_context(socket_balancer(standing.node1, standing.service, standing.tmp))
        yield standing


@pytest.fixture
def agent(world: World, tmp_path: Path) -> Iterator[Agent]:
    # What the fork server starts is in the control group of the server.
    made = agent_on(world.node1, world.manifests, tmp_path, forked=False)
    yield made
    assert made.cleanup().exit_code == 0


def test_dnat_alone_serves_no_program(world: World, agent: Agent) -> None:
    for host in (world.node1, world.pod1):
        assert_cut(world, host, *NAMED)
    configure(agent, dnat={"backend": "nftables"}, hosts={"enabled": False})
    assert agent.apply().exit_code == 0
    for host in (world.node1, world.pod1):
        assert_cut(world, host, *NAMED)
    answer = agent.run("doctor", "-o", "json")
    assert answer.exit_code == 2
    bypassed = {"DnatBypassed", "SocketBalancer", "PodsNotServed"}
    assert bypassed <= {finding["code"] for finding in answer.document["findings"]}
    # As in a pod, which sees no /sys/fs/bpf: it is measured.
    with _unseen(world):
        told = {one["code"]: one["status"] for one in agent.run("doctor", "-o", "json").document["findings"]}
    assert bypassed <= told.keys()
    assert not told.keys() & {"DataPlaneKnown", "PodsServed", "RelayDown"}


@contextmanager
def _unseen(world: World) -> Iterator[None]:
    world.node1.run(["mount", "-t", "tmpfs", "none", "/sys/fs"])
    world.node1.run(["mkdir", "/sys/fs/bpf"])
    try:
        yield
    finally:
        world.node1.run(["umount", "/sys/fs"])


def test_the_overlay_cilium_serves_the_node_and_its_pods(world: World, agent: Agent, tmp_path: Path) -> None:
    overlay = yaml.safe_load(configuration(deployed("overlays/cilium")))
    configure(agent, dnat=overlay["dnat"], coredns=overlay["coredns"])
    assert agent.apply().exit_code == 0
    assert_served(world, world.node1, *NAMED)
    # Pods don't read the node's hosts file: without CoreDNS they are not served.
    assert_cut(world, world.pod1, *NAMED)
    relay = _what_coredns_answers(world, agent, tmp_path)
    for url in NAMED:
        answer = world.pod1.curl(url, resolve=relay)
        assert answer.ok, (url, answer)
        assert answer.body.startswith(f"client={world.address(world.pod1)} ")
    status = agent.status()
    assert status.exit_code == 0, status
    assert "pods are not served" not in status.text
    told = {finding["code"] for finding in agent.run("doctor", "-o", "json").document["findings"]}
    assert {"PodsUnclear", "RemediedByHosts", "DataPlaneKnown"} <= told
    assert "SocketBalancer" not in told


def _what_coredns_answers(world: World, agent: Agent, directory: Path) -> IPv4Address | IPv6Address:
    """Make the overlay's controller's pass with this world's objects; the site's address."""
    with ApiServer() as api, connect(api.write_kubeconfig(directory / "kubeconfig")) as connection:
        for obj in objects_under(world.manifests):
            api.store.create(obj)
        put(api, {"Corefile": ".:53 {\n    errors\n    reload\n    forward . 192.0.2.2\n}\n"})
        reconciler = CoreDnsReconciler(connection, ApiServers())
        reconciler.reconcile(read_cluster(connection, "node1"), {}, read_config(agent.config))
        return ip_address(answer_of(corefile(api), SITE, directory))
