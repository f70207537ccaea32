"""The calling thread in a host's network: sockets and programs that it makes there belong there."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.testbed.namespaces import Host

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(host: Host) -> Iterator[None]:
    """Run the calling thread, and what it starts, in a host's network; its files stay the machine's own.

    A socket goes on to belong there when the block has ended.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter(there)
        try:
            yield
        finally:
            _enter(home)
    finally:
        os.close(there)
        os.close(home)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
