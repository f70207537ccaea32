"""Which TCP ports are taken on every address of the node, so that the relay can't listen on them."""

from pathlib import Path

_LISTEN = "0A"


def taken_ports(proc_net: Path = Path("/proc/self/net")) -> frozenset[int]:
    """The ports that some socket listens on for 0.0.0.0 or ::, in this network namespace.

    Linux refuses to bind an address and port while another process listens on the wildcard and that port,
    unless both set SO_REUSEPORT as the same user (inet_csk_get_port()). An absent table (IPv6 switched
    off) counts as empty.
    """
    return frozenset(port for table in ("tcp", "tcp6") for port in _wildcard_ports(proc_net / table))


def _wildcard_ports(table: Path) -> list[int]:
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:
        return []
    rows = [line.split() for line in lines]
    local = [row[1].rpartition(":") for row in rows if row[3] == _LISTEN]
    return [int(port, 16) for address, _, port in local if set(address) == {"0"}]
