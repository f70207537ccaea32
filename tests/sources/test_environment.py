"""A node's system, read from files as they may be on one."""

from pathlib import Path

import pytest

from nodeagent.sources.node.environment import Environment, read_environment


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
