"""The calling thread in a host, for a while or for good: its sockets and programs belong there; its /etc."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.isolation import MS_BIND, MS_REC, NEWNET, NEWNS, NEWPID, NEWUTS, bind, in_network, mount
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.testbed.addresses import Address
    from tests.testbed.namespaces import Host

OF_A_HOST = NEWNET | NEWNS | NEWUTS | NEWPID
"""The namespaces that a host has of its own; the first process that is started in them is its process 1."""
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
# What the world's programs read there: users and groups, the resolver's and linker's settings, names of
# protocols, OpenSSL's defaults.
_COPIED = (
    *[
        "ethertypes",
        "gai.conf",
        "group",
        "host.conf",
        "ld.so.cache",
        "ld.so.conf",
        "localtime",
        "nsswitch.conf",
    ],
    *["passwd", "protocols", "rpc", "services", "ssl/openssl.cnf"],
)
_MOUNTED = ("alternatives", "iproute2", "ld.so.conf.d")
"""These are too many files to be copied: each host mounts the machine's own directories, read-only."""


@contextmanager
def inside(host: Host) -> Iterator[None]:
    """Run the calling thread, and what it starts, in a host's network; its files stay the machine's own."""
    there = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with in_network(there):
            yield
    finally:
        os.close(there)


def run_ip(host: Host, lines: Sequence[str]) -> None:
    """Run lines of `ip -batch` in a host's network, with the machine's process ids, which name the cables."""
    with inside(host):
        done = subprocess.run(
            ["ip", "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise WorldError(f"{host.name}: ip -batch: {done.stderr}\n" + "\n".join(lines))


def fill_etc(etc: Path, name: str, addresses: Sequence[Address], nameserver: Address, ca: Path) -> None:
    """Make a directory that becomes a host's /etc, so that no test ever touches the machine's.

    The host's name and addresses are in its hosts file. It trusts no certificate but `ca`.
    """
    (etc / "ssl" / "certs").mkdir(parents=True)
    for directory in _MOUNTED:
        if Path("/etc", directory).is_dir():
            (etc / directory).mkdir()
    for relative in _COPIED:
        source = Path("/etc") / relative
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, etc / relative, symlinks=True)
        elif source.exists():
            shutil.copy2(source, etc / relative, follow_symlinks=False)
    shutil.copyfile(ca, etc / "ssl" / "certs" / "ca-certificates.crt")
    (etc / "hostname").write_text(f"{name}\n", encoding="ascii")
    (etc / "resolv.conf").write_text(f"nameserver {nameserver}\n", encoding="ascii")
    hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    hosts += "".join(f"{address}\t{name}\n" for address in addresses)
    (etc / "hosts").write_text(hosts, encoding="ascii")


def furnish_host(etc: Path, name: str, *, ipv6: bool) -> None:
    """Make mounts, name and settings of the calling thread's host, which has its process 1."""
    for directory in filter(Path.exists, map(etc.joinpath, _MOUNTED)):
        bind(f"/etc/{directory.name}", directory, read_only=True)
    mount(etc, "/etc", flags=MS_BIND | MS_REC)
    mount("tmpfs", "/run", "tmpfs", options="mode=0755,size=64m")
    Path("/run/lock").mkdir()
    Path("/run/lock").chmod(0o1777)
    mount("sysfs", "/sys", "sysfs")
    # A /proc is that of the process namespace of the process that mounts it, and this one is outside.
    proc = ["mount", "-t", "proc", "-o", "nosuid,nodev,noexec", "proc", "/proc"]
    subprocess.run(proc, check=True)
    os.chdir("/")
    socket.sethostname(name)
    for key, value in _settings(ipv6=ipv6).items():
        Path("/proc/sys/net", key).write_text(f"{value}\n", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _settings(*, ipv6: bool) -> dict[str, int]:
    """Return what is set below /proc/sys/net: `all` is for the devices that exist, `default` for others."""
    settings = dict.fromkeys(("ipv4/conf/all/send_redirects", "ipv4/conf/default/send_redirects"), 0)
    settings["ipv4/ip_forward"] = 1
    if ipv6:
        # No other host is on the cables: link-local addresses need not wait for a second.
        settings |= {"ipv6/conf/all/accept_dad": 0, "ipv6/conf/default/accept_dad": 0}
        settings["ipv6/conf/all/forwarding"] = 1
    else:
        settings |= {"ipv6/conf/all/disable_ipv6": 1, "ipv6/conf/default/disable_ipv6": 1}
    bridge = "bridge/bridge-nf-call-iptables"
    if Path("/proc/sys/net", bridge).exists():
        settings[bridge] = 0
    return settings
