"""Runs a test in a mount namespace of its own: no other process sees its mounts, which end with it."""

import ctypes
import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, ParamSpec

from tests.root import needs_root

P = ParamSpec("P")
_CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18

__all__ = ["bind", "in_private_mounts", "mount", "needs_root"]


def mount(source: object, target: object, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Make the system call of that name; raise what it refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = (str(source), str(target), kind)
    if libc.mount(*(word.encode() for word in words), ctypes.c_ulong(flags), options.encode()) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {words}: {os.strerror(code)}")


def bind(source: object, target: object, *, read_only: bool = False) -> None:
    """Bind-mount a file or a directory."""
    mount(source, target, flags=MS_BIND)
    if read_only:
        mount(source, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def in_private_mounts(test: Callable[P, None]) -> Callable[P, None]:
    """Make a test run in a forked child with a mount namespace of its own; its failure fails the test."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        child = os.fork()
        if child == 0:
            _run_and_exit(functools.partial(test, *args, **kwargs))
        try:
            _, status = os.waitpid(child, 0)
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        assert os.waitstatus_to_exitcode(status) == 0, "failed in its mount namespace; see stderr"

    return needs_root(run)


def _run_and_exit(test: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(_CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
        test()
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not return into pytest, whatever happens
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
