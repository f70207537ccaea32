"""The calling thread in a host: sockets and programs that it makes there belong there."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.testbed.namespaces import Host

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(host: Host) -> Iterator[None]:
    """Run the calling thread, and what it starts, in a host's network; its files stay the machine's own.

    A socket goes on to belong there when the block has ended.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/proc/{host.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(there, _CLONE_NEWNET))
        try:
            yield
        finally:
            _check(_libc.setns(home, _CLONE_NEWNET))
    finally:
        os.close(there)
        os.close(home)


def enter_host(descriptor: int) -> None:
    """Take a process of one thread, and its children, into a host, of whose process it has a descriptor.

    As with `nsenter`, only its children are in the host's process namespace; its directory is `/`.
    """
    _check(_libc.setns(descriptor, _CLONE_NEWNET | _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWPID))


def die_with_parent() -> None:
    """Have the calling process killed when its parent dies."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
