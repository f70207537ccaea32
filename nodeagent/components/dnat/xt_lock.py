"""The lock of the xtables programs. EFFECTS.

iptables, iptables-restore and so kube-proxy hold it while they change a table; python-iptables takes none,
and what is committed on top of a table read before somebody else's commit undoes that.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeagent.errors import ApplyError

_VARIABLE = "XTABLES_LOCKFILE"
_DEFAULT = "/run/xtables.lock"
_PAUSE_SECONDS = 0.02
WAIT_SECONDS = 10.0
"""Longer than kube-proxy's restore of a large table takes, shorter than anybody's patience."""


def lock_path() -> Path:
    """The file that iptables locks: its own environment variable names another one than the usual."""
    return Path(os.environ.get(_VARIABLE) or _DEFAULT)


@contextmanager
def xtables_lock(wait: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock for the time of the block, as iptables does (iptables/xshared.c).

    Args:
        wait: Seconds to wait for whoever holds it.

    Raises:
        ApplyError: it was held all the while, or the file can't be had; nothing was changed.
    """
    path = lock_path()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ApplyError(
            f"{path} could not be opened ({error.strerror}), and without it, no program may change "
            "iptables' tables; no rule was changed. In a pod it is a volume of type FileOrCreate."
        ) from error
    try:
        _acquire(descriptor, path, wait)
        yield
    finally:
        os.close(descriptor)  # and with it the lock goes


def _acquire(descriptor: int, path: Path, wait: float) -> None:
    deadline = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise ApplyError(
                    f"another program has held {path} for {wait:g} seconds; no iptables rule was changed. "
                    f"It will be tried again. `fuser -v {path}` on the host shows which program it is."
                ) from None
            time.sleep(_PAUSE_SECONDS)
        else:
            return
