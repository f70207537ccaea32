"""Which of a node's agents writes: the newest living one, and no other at the same time.

During an upgrade two agents run side by side for a while. The newest takes the node's lock, the one that
`nodeagent apply` takes, as soon as its owner releases it; an older owner releases it between two passes and
is on standby, to take over again if the newer one dies. The lock alone makes sure that two never write; the
claim only determines which agent gets it.

Agents may run in different PID namespaces (an upgrade's two pods), so no process id shows whether one is
alive; the kernel releases a lock (flock(2)) with its process, however that ends. Each agent that starts
replaces the claim of the one before, so the file is the newest agent's.
"""

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodeagent.errors import ApplyError

_LOG = logging.getLogger("nodeagent")

CLAIM = "claim"


class NodeClaim:
    """One agent's claim to its node: a file that it keeps locked as long as it lives.

    Args:
        run_dir: The run directory; made (0700) if needed.

    Raises:
        ApplyError: it can't be used.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / CLAIM
        self._descriptor = self._make()

    def is_superseded(self) -> bool:
        """Whether a living agent has replaced it. If another program removed it, it is made again."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            removed, self._descriptor = self._descriptor, self._make()
            os.close(removed)
            return False
        return not os.path.samestat(found, os.fstat(self._descriptor)) and not _is_dead(self._path)

    def close(self) -> None:
        """Give it up; the file stays until `sweep`. Call it once."""
        os.close(self._descriptor)

    def _make(self) -> int:
        draft = self._path.with_name(f"{CLAIM}.{secrets.token_hex(8)}")
        problem = (
            "this agent could not claim the node there; nothing was changed. Run as root, and make "
            "relay.runDir writable."
        )
        while True:
            descriptor = _made(draft, os.O_EXCL, problem)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                draft.rename(self._path)
            except FileNotFoundError:
                os.close(descriptor)  # swept as a leftover before it was locked
            except BaseException:
                os.close(descriptor)
                raise
            else:
                return descriptor


def _made(path: Path, flags: int, problem: str) -> int:
    """Open a file of the run directory, make both if needed. Raises ApplyError with the problem."""
    tries = 100
    while True:
        tries -= 1
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and tries:
                continue  # an agent that left removed the empty directory
            raise ApplyError(f"{path.parent}: {error.strerror}: {problem}") from error


def sweep(run_dir: Path) -> None:
    """Remove the claims of dead agents, half made ones too. Under the node's lock. Idempotent."""
    for path in run_dir.glob(f"{CLAIM}*"):
        if _is_dead(path):
            path.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    """Whether no process holds the file's lock. Takes a shared one, so that two checks don't collide."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


LOCK = "lock"
_STANDBY_AFTER_SECONDS = 15.0
"""Then an agent that waits for the lock is on standby, which is ready: an older one that hangs, or knows no
claim (before 23 November 2026), is ended only when its successor is ready."""
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
        """Of the locked file; -1: not held."""

    def try_acquire(self) -> bool:
        """Take the lock if no process has it, and return whether it is held now; never wait.

        A lock file that was removed keeps no process out: it is made again.

        Raises:
            ApplyError: the directory or the file can't be made.
        """
        if self._descriptor >= 0 and not self._is_current(self._descriptor):
            self.release()
        while self._descriptor < 0:
            problem = "could not take the node lock there; nothing was changed. Run as root."
            descriptor = _made(self._path, os.O_NOFOLLOW, problem)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            if not self._is_current(descriptor):
                os.close(descriptor)  # its last owner removed it meanwhile
                continue
            self._descriptor = descriptor
            # Only other processes' messages name it: a full file system must not keep the node without
            # its writer.
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return True

    def owner(self) -> str:
        """Return the process id that the lock's owner wrote, as that process sees itself."""
        with suppress(OSError):
            return self._path.read_text("ascii", "replace").strip() or "unknown"
        return "unknown"

    def release(self) -> None:
        """Release the lock, if it is held; idempotent."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also for a child that has it open
            os.close(self._descriptor)
            self._descriptor = -1

    def leave(self) -> None:
        """Release the lock for good: remove what dead agents left, and the run directory if it is empty.

        If no process has the lock, it is taken for that: its last owner may have left it to an agent that
        ended before it was its turn.
        """
        held = False
        with suppress(ApplyError):  # where no lock can be made, there is nothing of ours to remove
            held = self.try_acquire()
        if held:
            sweep(self._run_dir)
            if os.listdir(self._run_dir) == [LOCK]:  # noqa: PTH208 - names are compared
                self._path.unlink()
                with suppress(OSError):  # ENOTEMPTY: an agent is just starting
                    self._run_dir.rmdir()
        self.release()

    def _is_current(self, descriptor: int) -> bool:
        """Whether the open file is still the one in the directory."""
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False


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


class WriterElection:
    """This agent's part in the election of its node's writer.

    Args:
        run_dir: The directory that all agents of the node share (`relay.runDir`).
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._lock = NodeLock(run_dir)
        self._claim: NodeClaim | None = None
        self._error = ""
        self._superseded = False
        self._held_at = 0.0

    @property
    def standby_reason(self) -> str:
        """Why this agent does not write; empty while an older one may be about to release the lock."""
        if self._error or self._superseded:
            return self._error or "another agent writes on this node"
        waits = time.monotonic() - self._held_at > _STANDBY_AFTER_SECONDS
        return "another process does not release the node lock" if waits else ""

    def start(self) -> None:
        """Claim the node: an older agent releases the lock after its pass. Raises ApplyError."""
        self._claim = NodeClaim(self._run_dir)
        self._held_at = time.monotonic()

    def is_writer(self) -> bool:
        """Whether a pass may begin: the lock is held, and no newer agent waits for it.

        Takes the lock if it is free, and releases it if a newer agent should have it.
        """
        try:
            self._superseded = self._claim is None or self._claim.is_superseded()
            if self._superseded:
                self._lock.release()
                return False
            held = self._lock.try_acquire()
            if held:
                self._held_at = time.monotonic()
        except (ApplyError, OSError) as error:
            if str(error) != self._error:
                self._error = str(error)
                _LOG.error("Could not determine which agent writes", extra={"fields": {"err": self._error}})
            return False
        self._error = ""
        return held

    def stop(self) -> None:
        """Release everything, so that another agent takes over; see `NodeLock.leave`. Idempotent."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None
            self._lock.leave()
