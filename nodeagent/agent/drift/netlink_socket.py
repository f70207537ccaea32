"""Notifications of the kernel over netlink, with only the standard library.

Not with pyroute2: its monitor (0.9.7) takes 0.2 ms of processor time per message, and the kernel sends 13 for
every pod that starts and ends, of which none concerns nodeagent; here, most are dropped after a check of
their bytes.
"""

import errno
import socket
import struct
from collections.abc import Iterable, Iterator

from msgspec import Struct

# include/uapi/linux/netlink.h
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_TYPE_MASK = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER

# include/uapi/asm-generic/socket.h; past the limit net.core.rmem_max, with CAP_NET_ADMIN.
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 8 << 20
"""A limit, not an allocation: ten times the 5,000 elements of one transaction of kube-proxy's."""

_DATAGRAM_BYTES = 1 << 17


class NotificationsLostError(Exception):
    """The kernel sent more than the socket's buffer can hold; the actual state must be read again."""


class Message(Struct, frozen=True):
    """One netlink message: its type, and what follows its header."""

    type: int
    payload: bytes


class Notifications:
    """A socket that receives some groups of one netlink protocol, in this thread's network namespace.

    Args:
        protocol: NETLINK_ROUTE (0) or NETLINK_NETFILTER (12).
        groups: The numbers of the groups.

    Raises:
        OSError: EPERM if the kernel lets only CAP_NET_ADMIN listen (NETLINK_NETFILTER).
    """

    def __init__(self, protocol: int, groups: Iterable[int]) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        try:
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            except PermissionError:
                # As much as an ordinary user gets; the kernel limits it to rmem_max.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            self._socket.bind((0, 0))
            for group in groups:
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
            self._socket.settimeout(0)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._socket.close()

    def datagrams(self) -> Iterator[bytes]:
        """Return what has arrived, without waiting; a datagram has one message or more.

        Raises:
            NotificationsLostError: some are missing; the next call returns those after them.
            OSError: the socket is broken.
        """
        while True:
            try:
                data, _, flags, (sender, _) = self._socket.recvmsg(_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    raise NotificationsLostError from error
                raise
            if flags & socket.MSG_TRUNC:
                raise NotificationsLostError
            if sender == 0:  # the kernel; a process has its port number
                yield data


def messages(datagram: bytes) -> Iterator[Message]:
    """Split a datagram (netlink(7): each message is aligned to 4 bytes). Pure."""
    offset = 0
    while offset + _HEADER.size <= len(datagram):
        length, kind, _, _, _ = _HEADER.unpack_from(datagram, offset)
        if length < _HEADER.size:
            return
        yield Message(kind, datagram[offset + _HEADER.size : offset + length])
        offset += (length + 3) & ~3


def attributes(data: bytes, offset: int) -> dict[int, bytes]:
    """Read the attributes that begin at `offset`, by their number; the last of each kind. Pure."""
    found: dict[int, bytes] = {}
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size:
            break
        found[kind & _TYPE_MASK] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return found


def text(value: bytes) -> str:
    """Return a string attribute without its final zero. Pure."""
    return value.rstrip(b"\0").decode(errors="replace")
