"""Notices that a HAProxy of this node was started, ended or was reloaded. EFFECTS."""

import select
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from nodeagent.components.relay.run_directory import RunDirectory

_RETURN_SECONDS = 0.3
"""How long HAProxy may not answer before it counts as ended: a reload takes a fraction of it."""
_AGAIN_SECONDS = 0.01
_CONNECT_SECONDS = 0.2
_ABSENT_SECONDS = 0.5
"""Between two attempts after that. An attempt takes 0.1 ms if there is no socket."""
_LOOK_SECONDS = 1.0
"""So often a new pod's directory is looked for."""
_CHUNK = 65536


class RelayWatch:
    """Implements `component.Watch`: a HAProxy ended, was started or reloaded, or answers again.

    By a connection to each master's socket, which ends with the master. It works for a pod in another pid
    namespace, where pidfd_open(2) does not. HAProxy 2.6 does this: the master never times out an idle
    connection (held for 500 s; the statistics socket would after 10); it ends when its worker dies
    (mworker_catch_sigchld(), without `no-exit-on-failure`), the worker when its master dies; and a reload
    closes the connection, since the master executes itself again.

    Args:
        directories: returns those of all HAProxies that are or were here.
    """

    def __init__(self, directories: Callable[[], Iterable[RunDirectory]]) -> None:
        self._directories = directories
        self._epoll = select.epoll()
        self._connections: dict[Path, socket.socket | None] = {}
        """By directory; None: its master does not answer."""
        self._gone: set[Path] = set()
        self.drain()

    @property
    def seconds(self) -> float:
        """Until the next attempt to connect."""
        waits = None in self._connections.values() or not self._connections
        return _ABSENT_SECONDS if waits else _LOOK_SECONDS

    def fileno(self) -> int:
        """See `component.Watch`."""
        return self._epoll.fileno()

    def close(self) -> None:
        """See `component.Watch`."""
        for connection in self._connections.values():
            if connection is not None:
                connection.close()
        self._epoll.close()

    def drain(self) -> str:
        """See `component.Watch`. If a connection has ended, wait as long as a reload takes."""
        directories = {each.path: each for each in self._directories()}
        for path in self._connections.keys() - directories.keys():
            if (connection := self._connections.pop(path)) is not None:
                connection.close()
        self._gone &= directories.keys()
        return "; ".join(filter(None, map(self._look, directories.values())))

    def _look(self, directory: RunDirectory) -> str:
        path = directory.path
        name = f"HAProxy of {directory.pod}" if directory.pod else "HAProxy"
        connection = self._connections.get(path)
        if connection is None:
            self._connections[path] = found = self._connected(directory)
            if found is not None:
                return f"{name} answers"
            if directory.pod and path not in self._gone and directory.is_gone():
                self._gone.add(path)
                return f"{directory.pod} has ended"
            return ""
        try:
            if connection.recv(_CHUNK):
                return ""
        except BlockingIOError:
            return ""
        except OSError:
            pass  # it was reset
        connection.close()
        deadline = time.monotonic() + _RETURN_SECONDS
        while (found := self._connected(directory)) is None and time.monotonic() < deadline:
            time.sleep(_AGAIN_SECONDS)
        self._connections[path] = found
        return f"{name} stopped, or was reloaded" if found else f"{name} stopped"

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
