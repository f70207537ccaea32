"""Sees what the agent did at the moment it is done: the kernel reports it, without polling.

Times are CLOCK_MONOTONIC, which all namespaces share.
"""

import ctypes
import os
import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self

from benchmarks.entering import socket_in
from tests.testbed.namespaces import Host

_PATIENCE_SECONDS = 20.0

# include/uapi/linux/inotify.h
_IN_MOVED_TO = 0x80
_INOTIFY_EVENT = struct.Struct("iIII")

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h
_NETLINK_NETFILTER = 12
_NFNLGRP_NFTABLES = 7
_NLMSGHDR = struct.Struct("IHHII")
_NFTABLES_MESSAGES = 10 << 8
NEW_ELEMENT = _NFTABLES_MESSAGES | 12
DELETED_ELEMENT = _NFTABLES_MESSAGES | 14
_DATAGRAM = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


class NothingHappenedError(Exception):
    """What was waited for did not happen in time."""


class Witness(ABC):
    """Waits on one descriptor of the kernel's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Stop watching."""

    @abstractmethod
    def fileno(self) -> int:
        """Return the descriptor that is readable when something happened."""

    def _moments(self, what: str) -> Iterator[float]:
        """Yield the time (monotonic seconds) at each sign of life; NothingHappenedError without one."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            ready, _, _ = select.select([self], [], [], max(0.0, deadline - time.monotonic()))
            moment = time.monotonic()
            if not ready:
                raise NothingHappenedError(f"{what}: nothing within {_PATIENCE_SECONDS:g} s")
            yield moment


class HostsFileWitness(Witness):
    """Watches a hosts file being replaced by a rename, as events of its directory show it.

    Args:
        path: the file, as this process reaches it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inotify: int = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        watch = _libc.inotify_add_watch(self._inotify, os.fsencode(path.parent), _IN_MOVED_TO)
        if self._inotify < 0 or watch < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path.parent))

    def close(self) -> None:
        """Stop watching."""
        os.close(self._inotify)

    def fileno(self) -> int:
        """Return the descriptor that is readable when something happened."""
        return self._inotify

    def await_with(self, line: bytes) -> float:
        """Wait for a rename that leaves a file with this text; returns its time."""
        return self._await(line, there=True)

    def await_without(self, line: bytes) -> float:
        """Wait for a rename that leaves a file without this text; returns its time."""
        return self._await(line, there=False)

    def _await(self, line: bytes, *, there: bool) -> float:
        for moment in self._moments(f"{self._path} renamed"):
            if self._renamed() and (line in self._path.read_bytes()) is there:
                return moment
        raise AssertionError

    def _renamed(self) -> bool:
        data = os.read(self._inotify, 65536)
        at = 0
        found = False
        while at < len(data):
            *_, length = _INOTIFY_EVENT.unpack_from(data, at)
            at += _INOTIFY_EVENT.size
            found |= os.fsdecode(data[at : at + length].rstrip(b"\0")) == self._path.name
            at += length
        return found


class DnatWitness(Witness):
    """Watches the committed transactions of nftables in one host's network.

    Args:
        host: the host.
    """

    def __init__(self, host: Host) -> None:
        self._socket = socket_in(host, socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._socket.bind((0, 1 << (_NFNLGRP_NFTABLES - 1)))

    def close(self) -> None:
        """Stop watching."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when something happened."""
        return self._socket.fileno()

    def wait(self, kind: int, address: IPv4Address) -> float:
        """Wait for a message of this kind about elements that hold the address; returns its time."""
        for moment in self._moments(f"nftables element with {address}"):
            if _tells(self._socket.recv(_DATAGRAM), kind, address.packed):
                return moment
        raise AssertionError


def _tells(datagram: bytes, kind: int, needle: bytes) -> bool:
    at = 0
    while at + _NLMSGHDR.size <= len(datagram):
        length, found, *_ = _NLMSGHDR.unpack_from(datagram, at)
        if found == kind and needle in datagram[at : at + length]:
            return True
        at += max(_NLMSGHDR.size, (length + 3) & ~3)
    return False
