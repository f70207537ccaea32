"""The calling thread in a host, for a while or for good: its sockets and programs belong there."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.isolation import (
    MS_BIND,
    MS_REC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUTS,
    bind,
    in_network,
    mount,
)
from tests.testbed.private_etc import MOUNTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.testbed.namespaces import Host

OF_A_HOST = NEWNET | NEWNS | NEWUTS | NEWPID
"""The namespaces that a host has of its own; the first process that is started in them is its process 1."""
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


@contextmanager
def inside(host: Host) -> Iterator[None]:
    """Run the calling thread, and what it starts, in a host's network; its files stay the machine's own."""
    there = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with in_network(there):
            yield
    finally:
        os.close(there)


def furnish_host(etc: Path, name: str, *, ipv6: bool) -> None:
    """Make mounts, name and settings of the calling thread's host, which has its process 1.

    Raises:
        OSError: The kernel did not allow it.
        subprocess.CalledProcessError: It did not allow the /proc.
    """
    for directory in filter(Path.exists, map(etc.joinpath, MOUNTED)):
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
