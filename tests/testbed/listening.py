"""Which ports of a network namespace something listens on."""

from pathlib import Path

# The kernel's numbers for a TCP socket that listens and a UDP socket that is bound.
_STATES = {"tcp": "0A", "udp": "07"}


def listening_ports(pid: int, protocol: str) -> frozenset[int]:
    """List the ports, of either family, on which something listens.

    Args:
        pid: Any process in the network namespace.
        protocol: tcp or udp.

    Returns:
        The ports.
    """
    ports = set()
    for table in (protocol, f"{protocol}6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text("ascii").splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == _STATES[protocol]:
                ports.add(int(local.rpartition(":")[2], 16))
    return frozenset(ports)
