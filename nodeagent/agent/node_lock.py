"""One writer per node: a lock (flock(2)) that the agent keeps, and that each command takes which writes.

The kernel releases it with its process: between PID namespaces, no process id shows whether one is alive.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodeagent.errors import ApplyError

LOCK = "lock"
LOCK_SECONDS = 10.0
"""How long a command waits for another writer."""
_PAUSE_SECONDS = 0.05


def _made(path: Path) -> int:
    tries = 100
    while True:
        tries -= 1
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and tries:
                continue  # an agent that left removed the empty directory
            why = "not a directory" if isinstance(error, FileExistsError) else error.strerror
            advice = "Run as root" if isinstance(error, PermissionError) else "Choose another relay.runDir"
            raise ApplyError(
                f"{path.parent}: {why}: could not take the node lock there; nothing was changed. {advice}."
            ) from error


class NodeLock:
    """The lock of a file in the run directory, which holds its owner's process id."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self.path = run_dir / LOCK
        self._descriptor = -1
        """Of the locked file; -1: not held."""

    def try_acquire(self) -> bool:
        """Take the lock if no process has it; return whether it is held. Raises ApplyError if it can't be."""
        if self._descriptor >= 0 and not self._is_current(self._descriptor):
            self.release()
        while self._descriptor < 0:
            descriptor = _made(self.path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            if not self._is_current(descriptor):
                os.close(descriptor)  # its last owner removed it meanwhile
                continue
            self._descriptor = descriptor
            # Only for others' messages: a full file system must not keep the node without its writer.
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return True

    @property
    def owner(self) -> str:
        """The process id of the lock's owner, as that process sees itself."""
        with suppress(OSError):
            return self.path.read_text("ascii", "replace").strip() or "unknown"
        return "unknown"

    def release(self) -> None:
        """Release the lock, if it is held; idempotent."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also for a child that has it open
            os.close(self._descriptor)
            self._descriptor = -1

    def leave(self) -> None:
        """Release the lock for good; if no other process has it, remove what no relay pod needs of it."""
        acquired = False
        with suppress(ApplyError):  # where no lock can be made, there is nothing of ours to remove
            acquired = self.try_acquire()
        if acquired and {entry.name for entry in self._run_dir.iterdir()} <= {LOCK, "relay"}:
            self.path.unlink()
            with suppress(OSError):  # relay pods are there, or another process has just begun
                self._run_dir.rmdir()
        self.release()

    def _is_current(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        return False


@contextmanager
def exclusive(run_dir: Path, timeout: float) -> Iterator[None]:
    """Hold the node's lock during the block; wait up to `timeout` seconds, then raise ApplyError."""
    lock = NodeLock(run_dir)
    deadline = time.monotonic() + timeout
    try:
        while not lock.try_acquire():
            if time.monotonic() >= deadline:
                raise ApplyError(
                    f"{run_dir / LOCK}: process {lock.owner} holds the node lock (nodeagent run, or "
                    "another apply; the process number in a container differs from that on the host); "
                    "nothing was changed. Wait for it, or stop it."
                )
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        lock.leave()
