"""The unix sockets of agents in the run directory, and their names, by which a probe finds its own agent.

The run directory is the node's and may be shared by two agents' pods (an upgrade's overlap), in each of which
the agent is process 1 and the host name is the node's. The PID namespace's inode distinguishes containers,
and a command that the kubelet executes in a container is in that container's namespace. So no setting is
needed.

The name does not end in .sock: the relay component removes such files when there is nothing to relay.
"""

import os
import socket
import time
from contextlib import suppress

_PREFIX = "agent-"
_SUFFIX = ".http"
_FRESH_SECONDS = 10.0


def own_socket(run_dir: str) -> str:
    """Return the path of this process's socket. Raises OSError without /proc."""
    return os.path.join(run_dir, f"{_own_prefix()}{os.getpid()}{_SUFFIX}")  # noqa: PTH118 - pathlib is slow to import


def sockets(run_dir: str, *, own_namespace: bool) -> list[str]:
    """Return the paths of agents' sockets, newest first: of this PID namespace, or of all.

    A crash may leave a socket on which no process listens. A missing directory contains none.

    Raises:
        OSError: the directory can't be read.
    """
    prefix = _own_prefix() if own_namespace else _PREFIX
    found = []
    try:
        with os.scandir(run_dir) as entries:
            for entry in entries:
                if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
                    try:
                        made = entry.stat(follow_symlinks=False).st_mtime_ns
                    except FileNotFoundError:
                        continue  # its agent just ended
                    found.append((made, entry.path))
    except FileNotFoundError:
        return []
    return [path for _, path in sorted(found, reverse=True)]


def remove_stale(run_dir: str) -> None:
    """Remove the sockets of agents that have ended, in any container; those that answer stay. Idempotent.

    Raises:
        OSError: the directory can't be read or changed.
    """
    for path in sockets(run_dir, own_namespace=False):
        if _is_stale(path):
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - pathlib is slow to import


def _is_stale(path: str) -> bool:
    """Whether no process listens; one made just now may be about to."""
    try:
        if time.time() - os.lstat(path).st_mtime < _FRESH_SECONDS:
            return False
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)  # noqa: FBT003 - the library's
            connection.connect(path)
    except ConnectionRefusedError:
        return True
    except (FileNotFoundError, BlockingIOError):
        return False  # removed meanwhile; or so busy that its queue is full
    return False


def _own_prefix() -> str:
    return f"{_PREFIX}{os.stat('/proc/self/ns/pid').st_ino}-"  # noqa: PTH116 - pathlib is slow to import
