"""What decides whether a fix can take effect on this node: CNI, packet filter, name service, /etc, SELinux.

Each value is read from one small file or a device's name; without root, some are denied, and the result says
so. And what this host's own programs get for a hostname: from the C library's resolver, with the hosts file.
"""

import array
import fcntl
import os
import socket
import subprocess
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from nodeagent.config.options import HostsOptions
from nodeagent.model.addresses import IPAddress
from nodeagent.node_files import hosts_fields, parse_resolv_conf
from nodeagent.programs import find_program, run_program
from nodeagent.sources.dns import Resolver, find_upstreams

_FS_IOC_GETFLAGS = 0x80086601
_FS_IMMUTABLE = 0x10
_SECONDS = 10.0
# Since 1.13, Cilium pins its socket load balancer's programs there (pkg/socketlb).
_SOCKET_BALANCER = "sys/fs/bpf/cilium/socketlb"
_CALICO_EBPF = "sys/class/net/bpfin.cali"
_CNI_SIGNS = (
    ("Cilium", "sys/class/net/cilium_host"),
    ("Calico's eBPF", _CALICO_EBPF),
    ("kube-router", "sys/class/net/kube-bridge"),
    ("OVN-Kubernetes", "sys/class/net/ovn-k8s-mp0"),
    ("Antrea", "sys/class/net/antrea-gw0"),
)


@dataclass(frozen=True, slots=True)
class HostsFileState:
    """The hosts file and its directory; `unreadable` says why it could not be read."""

    path: Path
    link: str = ""
    immutable: bool = False
    read_only: bool = False
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """What was read.

    Attributes:
        cni: CNIs that handle Services themselves, each with the evidence.
        socket_balancer: evidence of a load balancer that rewrites `connect()`; empty for none; None if that
            can't be seen from here.
        iptables: the variant of `iptables` here, as it reports itself; empty without the program.
        nft: the version of nft; empty without the program.
        hosts: the hosts file.
        name_order: the sources of host names in their order (nsswitch.conf); None if it can't be read.
        name_servers: of resolv.conf, None if it can't be read.
        resolv_link: where resolv.conf leads, if it is a link.
        selinux: "off", "permissive" or "enforcing".
    """

    cni: tuple[tuple[str, str], ...]
    socket_balancer: str | None
    iptables: str
    nft: str
    hosts: HostsFileState
    name_order: tuple[str, ...] | None
    name_servers: tuple[str, ...] | None
    resolv_link: str
    selinux: str


def read_environment(hosts_file: Path, root: Path = Path("/")) -> Environment:
    """Read; changes nothing.

    Args:
        hosts_file: the option `hosts.file`; its directory is the node's /etc, wherever it is mounted here.
        root: of /sys.
    """
    etc = hosts_file.parent
    link = _link(etc / "resolv.conf")
    resolv, enforce = _text(etc / "resolv.conf"), _text(root / "sys/fs/selinux/enforce")
    return Environment(
        cni=tuple((name, f"/{sign}") for name, sign in _CNI_SIGNS if (root / sign).exists()),
        socket_balancer=_socket_balancer(root),
        iptables=_version("iptables"),
        nft=_version("nft"),
        hosts=_hosts_file(hosts_file),
        name_order=_name_order(etc / "nsswitch.conf"),
        name_servers=None if resolv is None else parse_resolv_conf(resolv).servers,
        resolv_link=link,
        selinux="off" if enforce is None else "enforcing" if enforce.strip() == "1" else "permissive",
    )


def _socket_balancer(root: Path) -> str | None:
    bpf = root / "sys/fs/bpf"
    try:
        if (root / _SOCKET_BALANCER).exists():
            return f"/{_SOCKET_BALANCER}"
    except PermissionError:
        return None
    # A kernel without BPF has no such directory. Only root can read bpffs, and a container sees it only if it
    # is mounted there: else, a missing entry means nothing. Calico's programs leave no trace in it.
    visible = not bpf.exists() or (bpf.is_mount() and os.access(bpf, os.R_OK | os.X_OK))
    return "" if visible and not (root / _CALICO_EBPF).exists() else None


def _version(program: str) -> str:
    path = find_program(program)
    if path is None:
        return ""
    try:
        done = run_program([path, "--version"], _SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def _hosts_file(path: Path) -> HostsFileState:
    link = _link(path)
    try:
        read_only = bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
        return HostsFileState(path, link, _immutable(path) or _immutable(path.parent), read_only)
    except OSError as error:
        return HostsFileState(path, link, unreadable=error.strerror or str(error))


def _immutable(path: Path) -> bool:
    """Whether `chattr +i` is set; a file system without such flags has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, flags)
        return bool(flags[0] & _FS_IMMUTABLE)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _name_order(path: Path) -> tuple[str, ...] | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ()  # musl has none: it reads the hosts file first, always
    except OSError:
        return None
    for line in lines:
        key, _, rest = line.partition("#")[0].partition(":")
        if key.strip() == "hosts":
            return tuple(word for word in rest.split() if not word.startswith("["))
    return ()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


_OWN_HOSTS = Path("/etc/hosts")


def resolve(options: HostsOptions, name: str) -> tuple[IPAddress, ...]:
    """Return a name's addresses as the node's programs try them; empty for none, whatever the reason.

    If the node's hosts file is not this process's own (in a container, which has the node's /etc elsewhere),
    it is read here, before the C library is asked. The container's own is the kubelet's copy of the node's,
    made when it started: a name that only the copy has is looked up in DNS.
    """
    hosts_file = Path(options.file)
    if hosts_file != _OWN_HOSTS:
        if found := _in_hosts_file(name, hosts_file):
            return found
        if any(not address.is_loopback for address in _in_hosts_file(name, _OWN_HOSTS)):
            return Resolver(partial(find_upstreams, options)).ask(name).addresses
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        # UnicodeError: a label that IDNA can't encode.
        return ()
    return tuple(dict.fromkeys(ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers))


def _in_hosts_file(name: str, file: Path) -> tuple[IPAddress, ...]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return ()
    found: dict[IPAddress, None] = {}
    for line in lines:
        address, names = hosts_fields(line)
        if name.lower() in names:
            try:
                found[ip_address(address)] = None
            except ValueError:
                continue  # not an address: such a line sets nothing
    return tuple(found)
