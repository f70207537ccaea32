"""One writer per node: an advisory lock in the run directory, which ends with its process in any case."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodeagent.agent.writer.registration import sweep
from nodeagent.errors import ApplyError

LOCK = "lock"
LOCK_SECONDS = 10.0
"""How long a command waits for another writer."""
_PAUSE_SECONDS = 0.05


class NodeLock:
    """The node's lock: flock(2) on the file `lock` in the run directory, which holds its owner's process id.

    Args:
        run_dir: The run directory; made (0700) if needed.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._path = run_dir / LOCK
        self._descriptor = -1
        self._held = False

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._held

    def try_acquire(self) -> bool:
        """Take the lock if no process has it, and return whether it is held now; never wait.

        A lock file that its last owner removed is no longer a lock and is made again.

        Raises:
            ApplyError: the directory or the file can't be made.
        """
        while not self._held:
            if self._descriptor < 0:
                self._descriptor = self._open()
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.stands():
                    return False
                self._close()
                continue
            if self.stands():
                self._held = True
                # Only other processes' messages name it: a full file system must not keep the node without
                # its writer.
                with suppress(OSError):
                    os.ftruncate(self._descriptor, 0)
                    os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
            else:
                self._close()
        return True

    def stands(self) -> bool:
        """Whether the lock file that is open here is still the one in the directory."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def owner(self) -> str:
        """Return the process id that the lock's owner wrote, as that process sees itself."""
        if self._descriptor < 0:
            return "unknown"
        return os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"

    def release(self) -> None:
        """Release the lock, if it is held; idempotent.

        Closing the file notifies those who watch the directory; the lock is free by then.
        """
        if self._held:
            self._held = False
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._close()

    def leave(self) -> None:
        """Release the lock for good: remove what dead agents left, and the run directory if it is empty.

        If no process has the lock, it is taken for that: its last owner may have left it to an agent that
        ended before it was its turn.
        """
        with suppress(ApplyError):  # where no lock can be made, there is nothing of ours to remove
            self.try_acquire()
        if self._held and self.stands():
            sweep(self._run_dir)
            if os.listdir(self._run_dir) == [LOCK]:  # noqa: PTH208 - names are compared
                self._path.unlink()
                with suppress(OSError):  # ENOTEMPTY: an agent is just registering
                    self._run_dir.rmdir()
        self.release()

    def _open(self) -> int:
        while True:
            try:
                self._run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:
                continue  # its last owner removed the empty directory meanwhile
            except OSError as error:
                raise ApplyError(
                    f"{self._run_dir}: {error.strerror}: could not take the node lock there; nothing was "
                    "changed. Run as root."
                ) from error

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextmanager
def exclusive(run_dir: Path, timeout: float) -> Iterator[None]:
    """Hold the node's lock while the block runs; make `run_dir` (0700) if needed.

    Waits up to `timeout` seconds for another writer. A run directory that has only the lock when the block
    ends is removed with it: no trace is left on a node that was cleaned up.

    Raises:
        ApplyError: another process holds the lock, or the directory can't be made. Nothing was changed.
    """
    lock = NodeLock(run_dir)
    deadline = time.monotonic() + timeout
    try:
        while not lock.try_acquire():
            if time.monotonic() >= deadline:
                raise ApplyError(
                    f"{run_dir / LOCK}: process {lock.owner()} holds the node lock (nodeagent run, or "
                    "another apply; the process number in a container differs from that on the host); "
                    "nothing was changed. Wait for it, or stop it."
                )
            time.sleep(_PAUSE_SECONDS)
        yield
    finally:
        lock.leave()
