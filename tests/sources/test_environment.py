"""A node's system, read from files as they may be on one."""

import json
import subprocess
from pathlib import Path

import pytest

from nodeagent.sources.node.environment import Environment, read_environment
from nodeagent.sources.node.service_proxy import BaseChain, base_chains
from tests.testbed.fixtures import needs_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's files: etc with hosts, nsswitch.conf and resolv.conf, and an empty sys."""
    etc = tmp_path / "etc"
    etc.mkdir()
    (tmp_path / "sys/class/net").mkdir(parents=True)
    (etc / "hosts").write_text("127.0.0.1 localhost\n", encoding="ascii")
    (etc / "nsswitch.conf").write_text(
        "passwd: files\n# hosts: dns\nhosts:  files [NOTFOUND=return]\tdns # both\n", encoding="ascii"
    )
    (etc / "resolv.conf").write_text(
        "search example.com\nnameserver 192.0.2.53\nnameserver  2001:db8::53\n", encoding="ascii"
    )
    return tmp_path


def _read(root: Path) -> Environment:
    return read_environment(root / "etc/hosts", root)


def test_an_ordinary_machine(root: Path) -> None:
    found = _read(root)
    assert found.cni == ()
    assert found.socket_balancer == ""
    assert found.name_order == ("files", "dns")
    assert found.name_servers == ("192.0.2.53", "2001:db8::53")
    assert found.selinux == "off"
    assert (found.hosts.link, found.hosts.immutable, found.hosts.read_only) == ("", False, False)
    assert "nftables v" in found.nft


def test_what_is_absent_is_distinguished_from_what_is_empty(root: Path) -> None:
    (root / "etc/nsswitch.conf").unlink()
    (root / "etc/resolv.conf").unlink()
    found = _read(root)
    assert found.name_order == ()
    assert found.name_servers is None


def test_links_are_reported(root: Path) -> None:
    for name, target in (
        ("hosts", "/nix/store/hosts"),
        ("resolv.conf", "../run/systemd/resolve/resolv.conf"),
    ):
        (root / "etc" / name).unlink()
        (root / "etc" / name).symlink_to(target)
    found = _read(root)
    assert found.hosts.link == "/nix/store/hosts"
    assert found.resolv_link == "../run/systemd/resolve/resolv.conf"


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


@pytest.mark.parametrize(("state", "word"), [("1", "enforcing"), ("0", "permissive")])
def test_selinux(root: Path, state: str, word: str) -> None:
    (root / "sys/fs/selinux").mkdir(parents=True)
    (root / "sys/fs/selinux/enforce").write_text(state, encoding="ascii")
    assert _read(root).selinux == word


@needs_root
@pytest.mark.parametrize("target", ["etc/hosts", "etc"])
def test_an_immutable_file_or_directory_is_reported(root: Path, target: str) -> None:
    path = str(root / target)
    done = subprocess.run(["chattr", "+i", path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this file system has no such flag: {done.stderr}")
    try:
        assert _read(root).hosts.immutable
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    assert not _read(root).hosts.immutable


def test_base_chains_are_those_that_translate() -> None:
    chain = {"family": "ip", "table": "kube-proxy"}
    hooked = chain | {"name": "nat-output", "type": "nat", "hook": "output", "prio": -100}
    filtering = chain | {"name": "filter-input", "type": "filter", "hook": "input", "prio": 0}
    listed = [
        {"metainfo": {}},
        {"chain": hooked},
        {"chain": chain | {"name": "services"}},
        {"chain": filtering},
    ]
    found = base_chains(json.dumps({"nftables": listed}))
    assert found == (BaseChain("ip", "kube-proxy", "nat-output", "output", -100),)
