"""The unix socket of one agent in the run directory, and its name, by which a probe finds its own agent.

The run directory is the node's and may be shared by two agents' pods (an upgrade's overlap), in each of which
the agent is process 1 and the host name is the node's. The PID namespace's inode distinguishes containers,
and a command that the kubelet executes in a container is in that container's namespace. So no setting is
needed.

The name does not end in .sock: the relay component removes such files when there is nothing to relay.
"""

import os

_PREFIX = "agent-"
_SUFFIX = ".http"


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


def _own_prefix() -> str:
    return f"{_PREFIX}{os.stat('/proc/self/ns/pid').st_ino}-"  # noqa: PTH116 - pathlib is slow to import
