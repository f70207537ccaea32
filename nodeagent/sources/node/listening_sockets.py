"""Which TCP ports are taken on every address of the node, so that the relay can't listen on them."""

from pathlib import Path

from nodeagent.model.addresses import Family
from nodeagent.sources.node.socket_diagnosis import ports_of_ipv6_alone

_LISTEN = "0A"


def taken_ports(proc_net: Path = Path("/proc/self/net")) -> frozenset[tuple[Family, int]]:
    """The ports that some socket listens on for 0.0.0.0 or :: in this network namespace, with the family.

    Linux refuses to bind an address and port while another process listens on the wildcard and that port,
    unless both set SO_REUSEPORT as the same user (inet_csk_get_port()). A listener on :: has the port in both
    families unless it is IPV6_V6ONLY, as nginx's are. An absent table (a kernel without IPv6) counts as
    empty.
    """
    four, six = _wildcard_ports(proc_net / "tcp"), _wildcard_ports(proc_net / "tcp6")
    both = six - ports_of_ipv6_alone() if six else six
    return frozenset({(4, port) for port in four | both} | {(6, port) for port in six})


def _wildcard_ports(table: Path) -> set[int]:
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:
        return set()
    rows = [line.split() for line in lines]
    local = [row[1].rpartition(":") for row in rows if row[3] == _LISTEN]
    return {int(port, 16) for address, _, port in local if set(address) == {"0"}}
