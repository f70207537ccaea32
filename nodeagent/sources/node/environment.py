"""What decides whether a fix can take effect on this node: the data plane and the order of name sources.

Each value is read from one small file or a device's name; without root, some are denied, and the result says
so. And what this host's own programs get for a hostname: from the C library's resolver, with the hosts file.
"""

import os
import socket
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from nodeagent.config.options import HostsOptions
from nodeagent.dns.lookup import Resolver, find_upstreams
from nodeagent.linux.node_files import hosts_fields
from nodeagent.model.addresses import IPAddress

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
class Environment:
    """What was read.

    Attributes:
        cni: CNIs that handle Services themselves, each with the evidence.
        socket_balancer: evidence of a load balancer that rewrites `connect()`; empty for none; None if that
            can't be seen from here.
        name_order: the sources of host names in their order (nsswitch.conf); empty if none is set, or it
            can't be read.
    """

    cni: tuple[tuple[str, str], ...]
    socket_balancer: str | None
    name_order: tuple[str, ...]


def read_environment(hosts_file: Path, root: Path = Path("/")) -> Environment:
    """Read; changes nothing.

    Args:
        hosts_file: the option `hosts.file`; its directory is the node's /etc, wherever it is mounted here.
        root: of /sys.
    """
    return Environment(
        cni=tuple((name, f"/{sign}") for name, sign in _CNI_SIGNS if (root / sign).exists()),
        socket_balancer=_socket_balancer(root),
        name_order=_name_order(hosts_file.parent / "nsswitch.conf"),
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


def _name_order(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()  # musl has none: it reads the hosts file first, always
    for line in lines:
        key, _, rest = line.partition("#")[0].partition(":")
        if key.strip() == "hosts":
            return tuple(word for word in rest.split() if not word.startswith("["))
    return ()


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
