"""Who holds which TCP port of this node: the relay's own listeners, and what it can't have."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from nodeagent.components.relay.socket_diagnosis import PortSocket, diagnose
from nodeagent.model.addresses import Endpoint, IPAddress

_LISTEN = "0A"
_ANY4, _ANY6 = IPv4Address(0), IPv6Address(0)


def port_sockets() -> tuple[PortSocket, ...]:
    """The sockets that hold a port in this thread's network namespace; needs no privilege."""
    try:
        return diagnose()
    except OSError:
        return from_tables(Path("/proc/thread-self/net"))


def from_tables(proc_net: Path) -> tuple[PortSocket, ...]:
    """The same from /proc/net/tcp and tcp6, where the kernel has no sock_diag: listening sockets alone.

    These tables don't tell IPV6_V6ONLY. An absent one (a kernel without IPv6) counts as empty.
    """
    return (*_rows(proc_net / "tcp"), *_rows(proc_net / "tcp6"))


def port_holders(sockets: Iterable[PortSocket], relay_uid: int) -> dict[Endpoint, int]:
    """Whose processes hold ports that the relay then can't have. Pure.

    Linux refuses to bind an address and port while another socket has them or has the wildcard and that port,
    unless both set SO_REUSEPORT as the same user (inet_csk_get_port()). So a socket of the relay's own user
    on one address is no hindrance: on a relay address it is the relay's, or another relay's at an upgrade. A
    wildcard counts whoever has it; a `::` that is not IPV6_V6ONLY (nginx's are) counts for both families.

    Returns:
        The user id by address and port; 0.0.0.0 and :: mean every address of the family.
    """
    found: dict[Endpoint, int] = {}
    for each in sockets:
        address, port = _plain(each.endpoint.address), each.endpoint.port
        if address == _ANY6 and not each.v6only:
            found.setdefault(Endpoint(_ANY4, port), each.uid)
        if address in (_ANY4, _ANY6) or each.uid != relay_uid:
            found[Endpoint(address, port)] = each.uid
    return found


def held_by(sockets: Iterable[PortSocket], uid: int) -> frozenset[Endpoint]:
    """The addresses and ports on which this user's sockets listen, and where no other user has one. Pure."""
    own: set[Endpoint] = set()
    others: set[Endpoint] = set()
    for each in sockets:
        endpoint = Endpoint(_plain(each.endpoint.address), each.endpoint.port)
        if each.uid != uid:
            others.add(endpoint)
        elif each.listening:
            own.add(endpoint)
    return frozenset(own - others)


def _plain(address: IPAddress) -> IPAddress:
    """An IPv6 socket on ::ffff:192.0.2.1 has that port of 192.0.2.1."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _rows(table: Path) -> Iterable[PortSocket]:
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:
        return
    for row in map(str.split, lines):
        if row[3] == _LISTEN:
            address, _, port = row[1].rpartition(":")
            yield PortSocket(Endpoint(_address(address), int(port, 16)), int(row[7]))


def _address(text: str) -> IPAddress:
    """Words of 32 bits, each in the machine's byte order: little-endian wherever nodeagent runs."""
    packed = b"".join(bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8))
    return IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)
