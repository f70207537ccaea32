"""The written rules of kube-proxy are those that the real one writes, chain by chain.

With KUBE_PROXY=/path/to/kube-proxy, KUBE_APISERVER= and ETCD= as in tests/apiserver; skipped without.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

import pytest

from nodeagent.model.facts import InterfaceAddress
from nodeagent.sources.node import read_kube_proxy
from tests.apiserver import objects
from tests.apiserver.objects import objects_under
from tests.apiserver.resources import Object
from tests.apiserver.server import write_kubeconfig
from tests.apiserver.servers import ADMIN, ETCD, KUBE_APISERVER, real
from tests.apiserver.wire import Peer, request
from tests.testbed.addresses import CLUSTER_CIDRS, EVERY_LOAD_BALANCER_IP, LB, SERVICE_CIDRS, SITE, Address
from tests.testbed.agent import Agent
from tests.testbed.errors import WorldError
from tests.testbed.inside import inside
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS, KubeProxyKind
from tests.testbed.namespaces import Host
from tests.testbed.processes import Process
from tests.testbed.services import INGRESS_SERVICE, ServicePort, ServiceRules
from tests.testbed.world import World

KUBE_PROXY = os.environ.get("KUBE_PROXY", "")
pytestmark = pytest.mark.skipif(
    not (KUBE_PROXY and KUBE_APISERVER and ETCD),
    reason="KUBE_PROXY, KUBE_APISERVER and ETCD name no programs to compare with: docs/development.md",
)

Rules = dict[str, list[str]]

# What kube-proxy puts into the nat table besides: it notices a flush by it.
_CANARY = "KUBE-PROXY-CANARY"
_UNORDERED = ("KUBE-SERVICES", "KUBE-NODEPORTS")
_PROGRAMS = ("iptables", "iptables-save", "iptables-restore")
_SYNCED_SECONDS = 20.0


@pytest.fixture(scope="module", params=KUBE_PROXY_KINDS)
def compared(as_root: None, request: pytest.FixtureRequest) -> Iterator[tuple[World, Peer]]:
    """A world of both families, and a real API server in it that knows the Service and its pods."""
    with World(kube_proxy=request.param, family="dual") as world, inside(world.lb):
        folder = world.tmp / "kube-apiserver"
        folder.mkdir()
        with real(folder, str(LB)) as server:
            _fill(server.admin, world)
            yield world, server.admin


def test_the_written_rules_are_the_real_ones(compared: tuple[World, Peer]) -> None:
    world, api = compared
    node = world.node1
    # What the real API server publishes about itself.
    ports = (ServicePort("https", 443, 0, api.port),)
    node.kube_proxy.add(ServiceRules("default", "kubernetes", (SERVICE_CIDRS[0][1],), (), ports, (LB,)))
    written = _rules(node, world.kind)
    _forget_rules(node, world.kind)
    process = _start(world, node, world.kind.partition("-")[0], api)
    different: dict[str, tuple[list[str] | None, list[str] | None]] = {}

    def same() -> bool:
        found = _rules(node, world.kind)
        different.clear()
        names = sorted(found.keys() | written.keys())
        different.update({n: (found.get(n), written.get(n)) for n in names if found.get(n) != written.get(n)})
        return not different

    with suppress(WorldError):
        process.await_that(same, "having written the same", seconds=_SYNCED_SECONDS, every=0.2)
    process.check_running()
    assert different == {}
    _assert_read_as(node, world.kind.partition("-")[0])
    # And the real rules do what tests expect of the written ones.
    url = f"http://{SITE}/"
    assert node.curl(url).cut
    assert node.curl(url, proxy_protocol=True).ok


def test_ipvs(compared: tuple[World, Peer]) -> None:
    """Another namespace's Service with the load balancer's address in `externalIPs` changes nothing."""
    world, api = compared
    if world.kind != KUBE_PROXY_KINDS[0]:
        pytest.skip("once is enough")
    node = world.node2
    if not Path("/proc/net/ip_vs").exists() or node.run(["ipset", "version"], check=False).returncode != 0:
        pytest.skip("kube-proxy's mode ipvs needs IPVS in the kernel, and ipset")
    _forget_rules(node, world.kind)
    process = _start(world, node, "ipvs", api)

    def await_served(address: Address, port: int) -> None:
        server = f"{int(address):08X}:{port:04X}"
        process.await_that(
            lambda: server in node.run(["cat", "/proc/net/ip_vs"]).stdout,
            "serving the address",
            seconds=_SYNCED_SECONDS,
            every=0.2,
        )

    def addressed() -> bool:
        standing = node.run(["ip", "address"]).stdout
        return all(f"{each}/" in standing for each in EVERY_LOAD_BALANCER_IP)

    process.await_that(addressed, "having synced both families", seconds=_SYNCED_SECONDS, every=0.2)
    address = EVERY_LOAD_BALANCER_IP[0]
    await_served(address, 443)
    _assert_read_as(node, "ipvs")
    clients, url = (node, world.pod2), f"https://{SITE}/"
    assert all(client.curl(url).cut for client in clients)
    agent = Agent(node)
    assert agent.apply().exit_code == 0
    assert all(client.curl(url).ok for client in clients)
    _create(api, "/api/v1/namespaces", {"metadata": {"name": "other"}})
    ports = [{"name": name, "port": port} for name, port in (("https", 443), ("own", 4430))]
    other = {"metadata": {"name": "other"}, "spec": {"ports": ports, "externalIPs": [str(address)]}}
    _create(api, "/api/v1/namespaces/other/services", other)
    await_served(address, 4430)
    assert all(client.curl(url).ok for client in clients)
    assert agent.cleanup().exit_code == 0


def _fill(api: Peer, world: World) -> None:
    namespace = INGRESS_SERVICE.namespace
    _create(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for obj in objects_under(world.manifests):
        if obj["kind"] in {"Node", "Service"}:
            where = f"/namespaces/{namespace}" if obj["kind"] == "Service" else ""
            _create(api, f"/api/v1{where}/{obj['kind'].lower()}s", obj)
    for family in world.families:
        service = INGRESS_SERVICE.within((family,))
        pods = zip(service.endpoints, world.nodes, strict=True)
        found = objects.endpoint_slice(
            f"{service.name}-{family}",
            service.name,
            namespace,
            endpoints=[objects.Endpoint(str(pod), node.name) for pod, node in pods],
            ports={port.name: port.target_port for port in service.ports},
        )
        _create(api, f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", found)


def _create(api: Peer, path: str, obj: Object) -> None:
    """Create an object; its status is written apart, as controllers do it."""
    status, answer = request(api, "POST", path, obj)
    assert status == 201, answer
    if "status" in obj:
        path = f"{path}/{obj['metadata']['name']}/status"
        kind = {"Content-Type": "application/merge-patch+json"}
        status, answer = request(api, "PATCH", path, {"status": obj["status"]}, kind)
        assert status == 200, answer


def _start(world: World, node: Host, mode: str, api: Peer) -> Process:
    cluster = {"server": f"https://{LB}:{api.port}", "insecure-skip-tls-verify": True}
    write_kubeconfig(world.tmp / "kubeconfig", cluster, ADMIN)
    programs = world.tmp / "iptables"
    if not programs.exists():
        programs.mkdir()
        variant = "legacy" if world.kind == "iptables-legacy" else "nft"
        for name in (*_PROGRAMS, *(each.replace("ip", "ip6", 1) for each in _PROGRAMS)):
            (programs / name).symlink_to(f"/usr/sbin/xtables-{variant}-multi")
    return node.popen(
        [
            *(KUBE_PROXY, f"--kubeconfig={world.tmp}/kubeconfig"),
            *(f"--hostname-override={node.name}", f"--proxy-mode={mode}"),
            f"--cluster-cidr={','.join(map(str, CLUSTER_CIDRS))}",
            # Settings of the whole machine, which stay as they are.
            *("--conntrack-max-per-core=0", "--conntrack-min=0"),
            *("--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s"),
        ],
        log=f"kube-proxy-{mode}",
        env={"PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin"},
    )


def _rules(node: Host, kind: KubeProxyKind) -> Rules:
    """Every chain, map and set by name, with what is in it; the rules of other tables must not translate."""
    if kind == "nftables":
        families = ("ip", "ip6")
        listed = {
            family: node.run(["nft", "list", "table", family, "kube-proxy"], check=False).stdout
            for family in families
        }
        return {f"{family} {name}": body for family in families for name, body in _nftables(listed[family])}
    rules: Rules = {}
    for family in ("", "6"):
        program = kind.replace("iptables", f"ip{family}tables")
        assert not re.search(r"-j (DNAT|REDIRECT|SNAT)", node.run([f"{program}-save", "-t", "filter"]).stdout)
        found = _iptables(node.run([f"{program}-save", "-t", "nat"]).stdout)
        rules |= {f"{name} of ip{family}": body for name, body in found.items()}
    return rules


def _nftables(listing: str) -> Iterator[tuple[str, list[str]]]:
    for name, body in re.findall(
        r"^\t((?:chain|map|set) \S+) \{\n(.*?)^\t\}", listing, re.DOTALL | re.MULTILINE
    ):
        lines = re.sub(r' ?comment ".*?"', "", body)
        before, _, elements = lines.partition("elements = {")
        yield (
            name,
            [
                *filter(None, map(str.strip, before.splitlines())),
                *sorted(" ".join(each.split()) for each in elements.strip(" }\n\t").split(",")),
            ],
        )


def _iptables(saved: str) -> Rules:
    rules: Rules = {name: [] for name in re.findall(r"^:(\S+)", saved, re.MULTILINE)}
    rules.pop(_CANARY, None)
    for chain, rule in re.findall(r"^-A (\S+) (.*)$", saved, re.MULTILINE):
        # These count in addition what the rule after them serves.
        if "-m nfacct" not in rule:
            rules[chain].append(rule)
    for name in _UNORDERED:
        rules[name] = sorted(rules.get(name, []))
    return rules


def _forget_rules(node: Host, kind: KubeProxyKind) -> None:
    node.run(["nft", "flush", "ruleset"])
    if kind == "iptables-legacy":
        for program in (kind, kind.replace("iptables", "ip6tables")):
            for option in ("-F", "-X"):
                node.run([program, "-t", "nat", option])


def _assert_read_as(node: Host, mode: str) -> None:
    """From the real rules, nodeagent reads which mode it is, and which addresses are short-circuited."""
    links = json.loads(node.run(["ip", "-json", "address"]).stdout)
    standing = [
        InterfaceAddress(ip_address(each["local"]), each["prefixlen"], link["ifname"])
        for link in links
        for each in link["addr_info"]
    ]
    with inside(node):
        seen = read_kube_proxy(standing)
    assert [each for each, _ in seen.modes] == [mode]
    assert seen.held is not None
    assert seen.held >= set(EVERY_LOAD_BALANCER_IP)
