"""The node's own names, and the addresses that its outgoing connections bear."""

import os
import socket
from ipaddress import ip_address

from nodeagent.model.addresses import IPAddress

# Documentation addresses (RFC 5737, RFC 3849): the kernel only looks up its route, nothing is sent.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_DISCARD_PORT = 9


def default_node_name() -> str:
    """The name that kubelet registers a node by when nobody says otherwise: the host name in lower case."""
    return os.uname().nodename.lower()


def own_names(node_name: str) -> frozenset[str]:
    """Names that mean this node itself: its Node's name and its host name, long and short."""
    names = {node_name.lower(), os.uname().nodename.lower()}
    return frozenset(names | {name.partition(".")[0] for name in names})


def source_addresses() -> tuple[IPAddress, ...]:
    """The source address that the kernel picks for connections to elsewhere, at most one a family.

    A family without a route is left out.
    """
    found = []
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, _DISCARD_PORT))
                found.append(ip_address(probe.getsockname()[0]))
        except OSError:
            continue  # No route, or the family is switched off: that family has no source address.
    return tuple(found)
