"""How a node is wired, judged on values."""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path

import pytest

from nodeagent.doctor.findings import CheckVerdict, Code
from nodeagent.doctor.node_wiring import wiring_findings
from nodeagent.sources.node.environment import Environment, HostsFileState
from nodeagent.sources.node.service_proxy import KubeProxy

HOSTS = HostsFileState(Path("/etc/hosts"))
RULES = KubeProxy(modes=(("nftables", "table kube-proxy in nftables"),))
NODE = Environment(
    cni=(),
    socket_balancer="",
    iptables="iptables v1.8.9 (nf_tables)",
    nft="nftables v1.0.6",
    hosts=HOSTS,
    name_order=("files", "dns"),
    name_servers=("192.0.2.53",),
    resolv_link="",
    selinux="off",
)
_CILIUM = (("Cilium", "/sys/class/net/cilium_host"),)


def _codes(
    environment: Environment = NODE,
    rules: KubeProxy = RULES,
    *,
    mounted: bool = False,
    hosts_written: bool = False,
    unused: AbstractSet[str] = frozenset(),
) -> set[Code]:
    found = wiring_findings(rules, environment, mounted=mounted, hosts_written=hosts_written, unused=unused)
    return {finding.code for finding in found}


def test_an_ordinary_node() -> None:
    assert _codes() == {
        Code.KubeProxyFound,
        Code.NoSocketBalancer,
        Code.PacketFilter,
        Code.HostsWritable,
        Code.FilesFirst,
        Code.ResolverPlain,
        Code.SelinuxOff,
    }


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        (replace(NODE, hosts=replace(HOSTS, link="/nix/store/x-hosts")), Code.HostsSymlink),
        (replace(NODE, hosts=replace(HOSTS, immutable=True)), Code.HostsImmutable),
        (replace(NODE, hosts=replace(HOSTS, read_only=True)), Code.HostsReadOnly),
        (replace(NODE, hosts=replace(HOSTS, unreadable="Permission denied")), Code.HostsUnreadable),
        (replace(NODE, name_order=("dns", "files")), Code.FilesNotFirst),
        (replace(NODE, name_order=("mymachines", "resolve", "files")), Code.FilesFirst),
        (replace(NODE, name_order=("dns",)), Code.FilesNotFirst),
        (replace(NODE, name_order=()), Code.NameOrderUnreadable),
        (replace(NODE, name_order=None), Code.NameOrderUnreadable),
        (replace(NODE, name_servers=("127.0.0.53",)), Code.ResolverSystemd),
        (replace(NODE, resolv_link="../run/systemd/resolve/resolv.conf"), Code.ResolverSystemd),
        (replace(NODE, name_servers=None), Code.ResolverUnreadable),
        (replace(NODE, selinux="permissive"), Code.SelinuxPermissive),
        (replace(NODE, selinux="enforcing"), Code.SelinuxEnforcing),
        (replace(NODE, nft=""), Code.NoPacketFilter),
        (replace(NODE, nft="", iptables=""), Code.NoPacketFilter),
        (replace(NODE, cni=_CILIUM, socket_balancer="/sys/fs/bpf/cilium/socketlb"), Code.SocketBalancer),
        (replace(NODE, socket_balancer=None), Code.SocketBalancerUnclear),
    ],
)
def test_what_is_in_the_way_is_reported(environment: Environment, code: Code) -> None:
    assert code in _codes(environment)


def test_what_is_in_the_way_of_a_fix_that_the_node_does_not_use_is_not() -> None:
    environment = replace(
        NODE,
        hosts=replace(HOSTS, read_only=True),
        name_order=("dns",),
        nft="",
        socket_balancer="/sys/fs/bpf/cilium/socketlb",
    )
    no_hosts_lines = _codes(environment, unused={"hosts-file", "name-order"})
    assert no_hosts_lines >= {Code.NoPacketFilter, Code.SocketBalancer}
    assert not no_hosts_lines & {Code.HostsReadOnly, Code.FilesNotFirst}
    nothing = _codes(environment, unused={"hosts-file", "name-order", "packet-filter", "cni"})
    assert all(code.verdict is not CheckVerdict.AFFECTED for code in nothing)


def test_a_hosts_file_is_written_in_place_if_mounted_and_serves_behind_a_socket_load_balancer() -> None:
    assert Code.HostsMounted in _codes(mounted=True)
    environment = replace(NODE, cni=_CILIUM, socket_balancer="/sys/fs/bpf/cilium/socketlb")
    assert Code.SocketBalancerByHosts in _codes(environment, hosts_written=True)


@pytest.mark.parametrize("sign", ["", None, "/sys/fs/bpf/cilium/socketlb"])
def test_what_was_measured_counts_more_than_a_sign(sign: str | None) -> None:
    for bypassed, code in ((True, Code.SocketBalancer), (False, Code.NoSocketBalancer)):
        found = wiring_findings(
            RULES, replace(NODE, socket_balancer=sign), mounted=False, hosts_written=False, bypassed=bypassed
        )
        assert [finding.code for finding in found if finding.check == "cni"] == [code]


def test_who_handles_services() -> None:
    assert Code.KubeProxyAbsent in _codes(rules=KubeProxy())
    assert Code.KubeProxyUnreadable in _codes(rules=KubeProxy(unreadable="root alone", held=None))
    findings = wiring_findings(KubeProxy(), replace(NODE, cni=_CILIUM), mounted=False, hosts_written=False)
    assert "Cilium (/sys/class/net/cilium_host)" in findings[0].seen
