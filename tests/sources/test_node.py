import os
import socket
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

import pytest

from nodeagent.config.option_types import AbsolutePath, DnsServer
from nodeagent.config.options import HostsOptions
from nodeagent.sources import node
from nodeagent.sources.node import Environment, ipv6_switched_off, read_environment, resolve
from tests.components.dnat.network import Namespace
from tests.dns.made_up_server import MadeUpServer
from tests.dns.test_asking import zone
from tests.root import needs_root


def test_the_node_is_named_as_kubelet_would_and_answers_to_its_long_and_short_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uname = os.uname_result(("Linux", "Worker-1.Example.com", "6.1", "#1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert node.default_node_name() == "worker-1.example.com"
    names = {"node1.internal", "node1", "worker-1.example.com", "worker-1"}
    assert node.own_names("Node1.internal") == names


def test_a_machine_without_a_route_has_no_source_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "socket", unreachable)
    assert node.source_addresses() == ()


@needs_root
def test_the_sysctl_is_named() -> None:
    """That of the device, or of a new one, in this network namespace, whatever that of another is."""
    with closing(Namespace()) as namespace:
        with namespace.inside():
            assert ipv6_switched_off("hairpin0") == ipv6_switched_off("lo") == ""
        namespace.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        with namespace.inside():
            assert ipv6_switched_off("hairpin0") == "sysctl net.ipv6.conf.default.disable_ipv6"
            assert ipv6_switched_off("lo") == ""
        namespace.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
        with namespace.inside():
            assert ipv6_switched_off("lo") == "sysctl net.ipv6.conf.lo.disable_ipv6"


def test_a_kernel_without_ipv6_is_known_by_what_it_lacks(tmp_path: Path) -> None:
    """No file of IPv6's in /proc/net."""
    assert ipv6_switched_off("hairpin0", tmp_path) == "ipv6.disable=1, or a kernel without IPv6"


def test_a_hidden_sysctl_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "thread-self" / "net").mkdir(parents=True)
    (tmp_path / "thread-self" / "net" / "if_inet6").touch()
    assert ipv6_switched_off("hairpin0", tmp_path) == ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's files: etc with hosts and nsswitch.conf, and an empty sys."""
    etc = tmp_path / "etc"
    etc.mkdir()
    (tmp_path / "sys/class/net").mkdir(parents=True)
    (etc / "hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    (etc / "nsswitch.conf").write_text(
        "passwd: files\n# hosts: dns\nhosts:  files [NOTFOUND=return]\tdns # both\n", encoding="ascii"
    )
    return tmp_path


def _read(root: Path) -> Environment:
    return read_environment(root / "etc/hosts", root)


def test_an_ordinary_machine(root: Path) -> None:
    found = _read(root)
    assert found.cni == ()
    assert found.socket_balancer == ""
    assert found.name_order == ("files", "dns")
    (root / "etc/nsswitch.conf").unlink()
    assert _read(root).name_order == ()


def test_what_handles_services_is_known_by_devices_and_pins(root: Path) -> None:
    (root / "sys/class/net/cilium_host").mkdir()
    (root / "sys/fs/bpf/cilium/socketlb").mkdir(parents=True)
    found = _read(root)
    assert found.cni == (("Cilium", "/sys/class/net/cilium_host"),)
    assert found.socket_balancer == "/sys/fs/bpf/cilium/socketlb"


@pytest.mark.parametrize("made", ["sys/fs/bpf", "sys/class/net/bpfin.cali"])
def test_what_can_not_be_seen_is_not_absent(root: Path, made: str) -> None:
    """In a pod, /sys/fs/bpf is an empty directory and no mount; Calico's programs leave no trace there."""
    (root / made).mkdir(parents=True)
    assert _read(root).socket_balancer is None


def test_the_nodes_hosts_file_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(
        "# 192.0.2.7 site.example.test\n"
        "nonsense site.example.test\n"
        "192.0.2.8\tSite.example.test other # site\n"
        "2001:db8::8 site.example.test\n",
        encoding="ascii",
    )
    options = HostsOptions(file=AbsolutePath(file))
    assert resolve(options, "site.example.test") == (ip_address("192.0.2.8"), ip_address("2001:db8::8"))
    assert resolve(options, "other") == (ip_address("192.0.2.8"),)
    assert ip_address("127.0.0.1") in resolve(options, "localhost"), "else the C library is asked"
    assert resolve(options, "a..b") == ()
    assert resolve(HostsOptions(file=AbsolutePath(tmp_path / "absent")), "a..b") == ()


def test_a_line_that_only_the_containers_copy_has_is_none_of_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet makes the copy when the container starts: the line may have been withdrawn since."""
    (tmp_path / "node").write_text("127.0.0.1 localhost\n", encoding="ascii")
    (tmp_path / "own").write_text("169.254.66.7 site.example.test\n", encoding="ascii")
    monkeypatch.setattr(node, "_OWN_HOSTS", tmp_path / "own")
    with MadeUpServer(zone("site.example.test. 60 A 192.0.2.9")) as server:
        servers = (DnsServer(str(server.endpoint)),)
        options = HostsOptions(file=AbsolutePath(tmp_path / "node"), dns_servers=servers)
        assert resolve(options, "site.example.test") == (ip_address("192.0.2.9"),)
