"""One writer a node: an advisory lock in the run directory that ends with its process, however that ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeagent.errors import ApplyError

_LOCK = "lock"
_PAUSE_SECONDS = 0.05


@contextmanager
def exclusive(run_dir: Path, timeout: float) -> Iterator[None]:
    """Holds the node's lock (flock on `run_dir`/lock) while the block runs; makes `run_dir` (0700) if needed.

    Waits up to `timeout` seconds for another writer. A run directory that is empty but for the lock when
    the block ends goes with it: no trace is left on a node that was cleaned up.

    Raises:
        ApplyError: another process holds the lock, or the directory can't be made. Nothing was changed.
    """
    descriptor = _locked(run_dir, time.monotonic() + timeout)
    try:
        yield
    finally:
        _leave(run_dir)
        os.close(descriptor)


def _locked(run_dir: Path, deadline: float) -> int:
    """The lock file, open and locked; opened anew when its last owner removed it with the directory."""
    while True:
        descriptor = _open(run_dir)
        try:
            _lock(descriptor, run_dir, deadline)
            if _stands(descriptor, run_dir):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _stands(descriptor: int, run_dir: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), (run_dir / _LOCK).stat())
    except FileNotFoundError:
        return False


def _open(run_dir: Path) -> int:
    try:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(run_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ApplyError(
            f"{run_dir}: {error.strerror}: can't hold the node's lock there; nothing was changed. "
            "Changing a node needs root."
        ) from error


def _lock(descriptor: int, run_dir: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                raise ApplyError(
                    f"{run_dir / _LOCK}: process {owner} is at work on this node (nodeagent run, or another "
                    "apply); nothing was changed. Wait for it, or stop it."
                ) from None
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _leave(run_dir: Path) -> None:
    """Removes lock and directory when nothing else is left in it, while the lock is still held."""
    if os.listdir(run_dir) == [_LOCK]:  # noqa: PTH208 - names are compared
        (run_dir / _LOCK).unlink()
        run_dir.rmdir()
