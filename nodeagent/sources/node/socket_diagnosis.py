"""Which listeners on :: are for IPv6 alone: the kernel tells by sock_diag(7), and /proc/net/tcp6 does not."""

import socket
import struct
from collections.abc import Iterator

_NETLINK_SOCK_DIAG = 4
_HEADER = struct.Struct("=IHHII")
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
# include/uapi/linux/inet_diag.h: inet_diag_req_v2, and inet_diag_msg with the attributes behind it.
_REQUEST = struct.Struct("=BBBBI48x")
_MESSAGE = struct.Struct("=B3x2s2x16s48x")
_ATTRIBUTE = struct.Struct("=HH")
_SKV6ONLY = 11
_LISTEN = 1 << 10
_BUFFER = 1 << 18


def ports_of_ipv6_alone() -> frozenset[int]:
    """The TCP ports on which every listener on :: leaves IPv4 to others (IPV6_V6ONLY). Needs no privilege.

    Returns:
        The ports; none where the kernel can't tell (no tcp_diag module).
    """
    alone: dict[int, bool] = {}
    try:
        for port, v6only in _wildcards():
            alone[port] = alone.get(port, True) and v6only
    except OSError:
        return frozenset()
    return frozenset(port for port, v6only in alone.items() if v6only)


def _wildcards() -> Iterator[tuple[int, bool]]:
    request = _REQUEST.pack(socket.AF_INET6, socket.IPPROTO_TCP, 0, 0, _LISTEN)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(header + request, (0, 0))
        while True:
            for kind, payload in _messages(kernel.recv(_BUFFER)):
                if kind in (_DONE, _ERROR):
                    return
                port, address = _MESSAGE.unpack_from(payload)[1:]
                if not any(address):
                    yield int.from_bytes(port, "big"), _is_v6only(payload[_MESSAGE.size :])


def _messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    while datagram:
        length, kind = _HEADER.unpack_from(datagram)[:2]
        yield kind, datagram[_HEADER.size : length]
        datagram = datagram[_aligned(length) :]


def _is_v6only(attributes: bytes) -> bool:
    while len(attributes) > _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        if kind == _SKV6ONLY:
            return attributes[_ATTRIBUTE.size] != 0
        attributes = attributes[_aligned(length) :]
    return False


def _aligned(length: int) -> int:
    return (length + 3) & ~3
