"""This node's names and addresses, and whether IPv6 is switched off here. EFFECTS: reads /proc."""

import os
import socket
from ipaddress import ip_address
from pathlib import Path

from nodeagent.model.addresses import IPAddress

# Documentation addresses (RFC 5737, RFC 3849): the kernel only looks up its route, nothing is sent.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_DISCARD_PORT = 9
_ROOT = Path("/proc")


def default_node_name() -> str:
    """Return the name under which the kubelet registers a node by default: the host name in lower case."""
    return os.uname().nodename.lower()


def own_names(node_name: str) -> frozenset[str]:
    """Return the names of this node itself: its Node's name and its host name, long and short."""
    names = {node_name.lower(), os.uname().nodename.lower()}
    return frozenset(names | {name.partition(".")[0] for name in names})


def source_addresses() -> tuple[IPAddress, ...]:
    """Return the source address of connections to other hosts, of each family that has a route."""
    found = []
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, _DISCARD_PORT))
                found.append(ip_address(probe.getsockname()[0]))
        except OSError:
            continue  # No route, or the family is switched off: that family has no source address.
    return tuple(found)


def ipv6_switched_off(device: str, proc: Path = _ROOT) -> str:
    """Return what keeps this device of the thread's network namespace from having IPv6 addresses.

    A kernel booted with `ipv6.disable=1` has none of IPv6's files. The sysctl `disable_ipv6` of a device
    keeps them from it; that of `default` is what a new device begins with, and that of `all` is written to
    both (Documentation/networking/ip-sysctl.rst).

    Args:
        device: The one that holds the relay addresses; it need not exist yet.
        proc: Where /proc is.

    Returns:
        The reason, for a person; empty if nothing does.
    """
    if not (proc / "thread-self/net/if_inet6").exists():
        return "ipv6.disable=1, or a kernel without IPv6"
    settings = proc / "sys/net/ipv6/conf"
    name = device if (settings / device).exists() else "default"
    try:
        value = (settings / name / "disable_ipv6").read_text(encoding="ascii")
    except OSError:
        return ""  # /proc/sys is hidden from this process: the addresses tell
    return "" if value.strip() == "0" else f"sysctl net.ipv6.conf.{name}.disable_ipv6"
