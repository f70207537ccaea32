"""The kernel's list of TCP sockets that hold a port, by sock_diag(7): with owner and family."""

import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

from msgspec import Struct

from nodeagent.model.addresses import Endpoint, IPAddress

_NETLINK_SOCK_DIAG = 4
_HEADER = struct.Struct("=IHHII")
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
# include/uapi/linux/inet_diag.h: inet_diag_req_v2, and inet_diag_msg with the attributes behind it.
_REQUEST = struct.Struct("=BBBBI48x")
_MESSAGE = struct.Struct("=BB2x2s2x16s40xI4x")
_ERROR_CODE = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")
_SKV6ONLY = 11
# TCP_LISTEN, and TCP_BOUND_INACTIVE: bound but not listening, which Linux 6.9 and newer tell.
_LISTEN, _BOUND_INACTIVE = 10, 13
_STATES = 1 << _LISTEN | 1 << _BOUND_INACTIVE
_BUFFER = 1 << 18


class PortSocket(Struct, frozen=True):
    """A TCP socket that holds a port.

    An address `::` that is not `v6only` has the port for IPv4, too. `uid` is the user that made the socket.
    One that is not `listening` only keeps the port from others.
    """

    endpoint: Endpoint
    uid: int
    v6only: bool = False
    listening: bool = True


def diagnose() -> tuple[PortSocket, ...]:
    """All sockets of this network namespace that listen or, where the kernel tells, are bound. No privilege.

    Raises:
        OSError: the kernel can't tell (no tcp_diag module).
    """
    return tuple(found for family in (socket.AF_INET, socket.AF_INET6) for found in _dump(family))


def _dump(family: socket.AddressFamily) -> Iterator[PortSocket]:
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _STATES)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
        kernel.sendto(header + request, (0, 0))
        while True:
            for kind, payload in _messages(kernel.recv(_BUFFER)):
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    code = -_ERROR_CODE.unpack_from(payload)[0]
                    raise OSError(code, f"sock_diag: {os.strerror(code)}")
                yield _socket(payload)


def _socket(payload: bytes) -> PortSocket:
    family, state, port, address, uid = _MESSAGE.unpack_from(payload)
    own: IPAddress = IPv4Address(address[:4]) if family == socket.AF_INET else IPv6Address(address)
    endpoint = Endpoint(own, int.from_bytes(port, "big"))
    return PortSocket(endpoint, uid, _is_v6only(payload[_MESSAGE.size :]), state == _LISTEN)


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
