"""The kernel's namespaces and mounts, for all tests that make or enter them; none outlives its test."""

import ctypes
import functools
import os
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, ParamSpec

import pytest

from tests.root import needs_root

P = ParamSpec("P")

NEWNS, NEWUTS, NEWPID, NEWNET = 0x00020000, 0x04000000, 0x20000000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    """Give the calling thread new namespaces; of mounts, none that the machine sees a change of."""
    _check(_libc.unshare(kinds))
    if kinds & NEWNS:
        mount("none", "/", flags=MS_REC | MS_PRIVATE)


def enter(descriptor: int, kinds: int = NEWNET) -> None:
    """Take the calling thread into a namespace, or into those of a process, of which it has a descriptor."""
    _check(_libc.setns(descriptor, kinds))


@functools.cache
def missing_rights() -> str:
    """Return why this process can't make the testbed's namespaces, and how to let it; empty if it can."""
    if os.geteuid() != 0:
        return "only root may make namespaces: run it as root (sudo make ...)"
    child = os.fork()
    if child == 0:
        with suppress(OSError, subprocess.SubprocessError):
            unshare(NEWNS | NEWPID | NEWNET)
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True, stderr=subprocess.DEVNULL)
            os._exit(0)
        os._exit(1)
    if os.waitpid(child, 0)[1] == 0:
        return ""
    return "root may not make namespaces here: if this is a container, run it with docker run --privileged"


def own_network() -> int:
    """Return a descriptor of the calling thread's network namespace; the caller closes it."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextmanager
def in_network(descriptor: int) -> Iterator[None]:
    """Run the calling thread, and what it starts, in a network namespace; its files stay the machine's own.

    A socket goes on to belong there when the block has ended.
    """
    home = own_network()
    try:
        enter(descriptor)
        try:
            yield
        finally:
            enter(home)
    finally:
        os.close(home)


def mount(source: object, target: object, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Make the system call of that name; raise what it refuses."""
    words = (str(source).encode(), str(target).encode(), kind.encode())
    _check(_libc.mount(*words, ctypes.c_ulong(flags), options.encode()), str(target))


def bind(source: object, target: object, *, read_only: bool = False) -> None:
    """Bind-mount a file or a directory."""
    mount(source, target, flags=MS_BIND)
    if read_only:
        mount(source, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def isolated(test: Callable[P, None]) -> Callable[P, None]:
    """A test whose body runs in a child, in mount, process and network namespaces of its own.

    There are an empty /run and no interface but `lo`; when the test ends, its processes are killed.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _unshare_and_run(functools.partial(test, *args, **kwargs), writer)
        os.close(writer)
        try:
            with os.fdopen(reader) as pipe:
                reported = pipe.read()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if reported != "passed":
            pytest.fail(reported or "the test's process died", pytrace=False)

    return needs_root(run)


def _unshare_and_run(body: Callable[[], None], writer: int) -> NoReturn:
    reported = "passed"
    try:
        unshare(NEWNS | NEWPID | NEWNET)
        first = os.fork()
        if first:
            os.close(writer)
            os.waitpid(first, 0)
            os._exit(0)
        # The first process of the new namespace: with it all others end.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        mount("proc", "/proc", "proc")
        mount("tmpfs", "/run", "tmpfs", options="mode=0755")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        body()
    except BaseException:  # noqa: BLE001 - whatever it was, the test's own process reports it
        reported = traceback.format_exc()
    os.write(writer, reported[:60000].encode())
    os._exit(0)


def _check(result: int, path: str | None = None) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
