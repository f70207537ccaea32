"""Notices that a HAProxy of this node was started, ended or was reloaded. EFFECTS."""

import math
import select
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from nodeagent.components.relay.run_directory import RunDirectory

_RETURN_SECONDS = 0.3
"""How long HAProxy may not answer before it counts as ended: a reload takes a fraction of it."""
_AGAIN_SECONDS = 0.02
_CONNECT_SECONDS = 0.2
_ABSENT_SECONDS = 0.5
"""Between two attempts after that. An attempt takes 0.1 ms if there is no socket."""
_LOOK_SECONDS = 1.0
"""So often a new pod's directory is looked for."""
_CHUNK = 65536


class RelayWatch:
    """Implements `component.Watch`: a HAProxy ended, was started or reloaded, or answers again.

    By a connection to each master's socket, which works for a pod in another pid namespace. HAProxy 2.6 does
    this: the master never times out an idle connection; it ends when its worker dies
    (mworker_catch_sigchld()), the worker when its master dies; and a reload closes the connection, since the
    master executes itself again.
    """

    def __init__(self, directories: Callable[[], Iterable[RunDirectory]]) -> None:
        self._directories = directories
        self._epoll = select.epoll()
        self._connections: dict[Path, socket.socket] = {}
        self._silent: dict[Path, float] = {}
        """When those without a connection count as ended; infinite if that was reported."""
        self._gone: set[Path] = set()
        self.drain()

    @property
    def seconds(self) -> float:
        """Until the next attempt to connect."""
        if any(at < math.inf for at in self._silent.values()):
            return _AGAIN_SECONDS
        return _ABSENT_SECONDS if self._silent or not self._connections else _LOOK_SECONDS

    def fileno(self) -> int:
        """See `component.Watch`."""
        return self._epoll.fileno()

    def close(self) -> None:
        """See `component.Watch`."""
        for connection in self._connections.values():
            connection.close()
        self._epoll.close()

    def drain(self) -> str:
        """See `component.Watch`."""
        directories = {each.path: each for each in self._directories()}
        for path in self._connections.keys() - directories.keys():
            self._connections.pop(path).close()
        self._silent = {path: at for path, at in self._silent.items() if path in directories}
        self._gone &= directories.keys()
        return "; ".join(filter(None, map(self._look, directories.values())))

    def _look(self, directory: RunDirectory) -> str:
        path = directory.path
        name = f"HAProxy of {directory.pod}" if directory.pod else "HAProxy"
        connection = self._connections.get(path)
        if connection is not None:
            if _is_open(connection):
                return ""
            self._connections.pop(path).close()
            self._silent[path] = time.monotonic() + _RETURN_SECONDS
        ends_at = self._silent.setdefault(path, math.inf)
        if found := self._connected(directory):
            self._connections[path] = found
            del self._silent[path]
            return f"{name} answers" if ends_at == math.inf else f"{name} stopped, or was reloaded"
        if time.monotonic() >= ends_at:
            self._silent[path] = math.inf
            return f"{name} stopped"
        if directory.pod and path not in self._gone and directory.is_gone():
            self._gone.add(path)
            return f"{directory.pod} has ended"
        return ""

    def _connected(self, directory: RunDirectory) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(str(directory.master_socket))
        except OSError:
            connection.close()
            return None
        connection.settimeout(0)  # recv() would wait that long, whatever its flags
        self._epoll.register(connection, select.EPOLLIN)
        return connection


def _is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(_CHUNK))
    except BlockingIOError:
        return True
    except OSError:
        return False  # it was reset
