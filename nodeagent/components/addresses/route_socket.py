"""One request after another to the kernel's routing netlink (rtnetlink(7)), each with its answers.

The messages are pyroute2's, the exchange is not: pyroute2's own uses asyncio, multiprocessing and the
messages of everything else, which take 5 MB and 50 ms to import.
"""

import errno
import os
import socket
import struct
from typing import Any, Self

# include/uapi/linux/netlink.h
_ROUTE = 0
_HEADER = struct.Struct("=IHHI4x")
_CODE = struct.Struct("=i")
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_INTERRUPTED = 0x10
CREATE, EXCLUSIVE = 0x400, 0x200

_DATAGRAM_BYTES = 1 << 16
"""The kernel fills at most 32 kB at once (net/netlink/af_netlink.c, netlink_recvmsg)."""
_TRIES = 10


class RouteSocket:
    """A socket in the network namespace of the thread that makes it; two threads must not use it at once.

    Raises:
        OSError: no socket is available.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _ROUTE)
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, kind: int, message: Any, flags: int = 0) -> list[Any]:  # noqa: ANN401 - pyroute2 has no types
        """Send one request, and return the answers to it, which are messages of its own class.

        Args:
            kind: The type of the request (RTM_...).
            message: Its fields and attributes.
            flags: `CREATE` and `EXCLUSIVE`, for requests that create something.

        Raises:
            OSError: the kernel rejected it; `errno` says why.
        """
        self._send(kind, message, _REQUEST | _ACK | flags)
        return self._answers(type(message))[0]

    def dump(self, kind: int, message: Any) -> list[Any]:  # noqa: ANN401 - see `ask`
        """Return all objects of a kind as they were at one moment. See `ask`.

        A change during the listing makes the list useless, as the kernel reports (NLM_F_DUMP_INTR): then the
        request is repeated.
        """
        for _ in range(_TRIES):
            self._send(kind, message, _REQUEST | _DUMP)
            found, whole = self._answers(type(message))
            if whole:
                return found
        raise OSError(errno.EINTR, os.strerror(errno.EINTR))

    def _send(self, kind: int, message: Any, flags: int) -> None:  # noqa: ANN401 - see `ask`
        self._number += 1
        message.reset()
        message["header"] |= {"type": kind, "flags": flags, "sequence_number": self._number}
        message.encode()
        self._socket.sendto(message.data, (0, 0))

    def _answers(self, of: Any) -> tuple[list[Any], bool]:  # noqa: ANN401 - see `ask`
        """Return the answers to the last request, and whether they all reflect one moment."""
        found: list[Any] = []
        whole = True
        while True:
            data, _, truncated, (sender, _) = self._socket.recvmsg(_DATAGRAM_BYTES)
            if truncated & socket.MSG_TRUNC:
                raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
            at = 0
            while sender == 0 and at + _HEADER.size <= len(data):  # the kernel; a process has its port number
                length, kind, flags, number = _HEADER.unpack_from(data, at)
                if number == self._number:
                    whole = whole and not flags & _INTERRUPTED
                    if kind in {_ERROR, _DONE}:
                        (code,) = _CODE.unpack_from(data, at + _HEADER.size)
                        if code:
                            raise OSError(-code, os.strerror(-code))
                        return found, whole
                    answer = of(data, offset=at)
                    answer.decode()
                    found.append(answer)
                at += (length + 3) & ~3
