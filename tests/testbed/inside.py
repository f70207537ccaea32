"""The calling thread in a host, for a while or for good: its sockets and programs belong there."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.testbed.private_etc import MOUNTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.testbed.namespaces import Host

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_OWN = _CLONE_NEWNET | _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWPID
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(host: Host) -> Iterator[None]:
    """Run the calling thread, and what it starts, in a host's network; its files stay the machine's own.

    A socket goes on to belong there when the block has ended.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(there, _CLONE_NEWNET))
        try:
            yield
        finally:
            _check(_libc.setns(home, _CLONE_NEWNET))
    finally:
        os.close(there)
        os.close(home)


def enter_host(descriptor: int) -> None:
    """Take a process of one thread, and its children, into a host, of whose process it has a descriptor.

    As with `nsenter`, only its children are in the host's process namespace; its directory is `/`.
    """
    _check(_libc.setns(descriptor, _OWN))


def become_host() -> None:
    """Give the calling thread, and what it starts, the namespaces of a new host.

    The first process that it starts is the host's process 1. No mount there is seen by the machine.
    """
    _check(_libc.unshare(_OWN))
    _mount("none", "/", flags=_MS_REC | _MS_PRIVATE)


def furnish_host(etc: Path, name: str, *, ipv6: bool) -> None:
    """Make mounts, name and settings of the calling thread's host, which has its process 1.

    Args:
        etc: The directory that becomes its /etc.
        name: Its host name.
        ipv6: Whether it supports IPv6; if not, it is switched off, even on `lo`.

    Raises:
        OSError: The kernel did not allow it.
        subprocess.CalledProcessError: It did not allow the /proc.
    """
    for directory in filter(Path.exists, map(etc.joinpath, MOUNTED)):
        _mount(f"/etc/{directory.name}", str(directory), flags=_MS_BIND)
        _mount("none", str(directory), flags=_MS_REMOUNT | _MS_BIND | _MS_RDONLY)
    _mount(str(etc), "/etc", flags=_MS_BIND | _MS_REC)
    _mount("tmpfs", "/run", "tmpfs", data="mode=0755,size=64m")
    Path("/run/lock").mkdir()
    Path("/run/lock").chmod(0o1777)
    _mount("sysfs", "/sys", "sysfs")
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


def _mount(source: str, target: str, kind: str = "none", *, flags: int = 0, data: str = "") -> None:
    _check(
        _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()),
        target,
    )


def _check(result: int, path: str | None = None) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
