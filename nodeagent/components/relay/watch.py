"""Watches HAProxy by a connection to its master's socket, which ends with the master.

The socket works for a sidecar in another pid namespace, where pidfd_open(2) does not. HAProxy 2.6 does this:
the master never times out an idle connection (held for 500 s; the statistics socket would after 10); it ends
when its worker dies (mworker_catch_sigchld(), without `no-exit-on-failure`), the worker when its master dies;
and a reload closes the connection, since the master executes itself again.
"""

import math
import socket
import time
from pathlib import Path

_RETURN_SECONDS = 0.3
"""How long HAProxy may not answer before it counts as ended: a reload takes a fraction of it."""
_PAUSE_SECONDS = 0.01
_CONNECT_SECONDS = 0.2
_ABSENT_SECONDS = 0.5
"""Between two attempts after that. An attempt takes 0.1 ms if there is no socket."""


class RelayWatch:
    """Implements `component.Watch`: HAProxy ended, was started or reloaded, or answers again."""

    def __init__(self, master_socket: Path) -> None:
        self._path = master_socket
        self._why = ""
        self._connection = self._connected()

    @property
    def seconds(self) -> float:
        """Until the next attempt to connect."""
        return _ABSENT_SECONDS if self._connection is None else math.inf

    def fileno(self) -> int:
        """See `component.Watch`."""
        return -1 if self._connection is None else self._connection.fileno()

    def close(self) -> None:
        """See `component.Watch`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def drain(self) -> str:
        """See `component.Watch`. If the connection has ended, wait as long as a reload takes."""
        if self._connection is None:
            self._connection = self._connected()
            return "" if self._connection is None else "HAProxy answers again"
        if not _ended(self._connection):
            return ""
        self.close()
        deadline = time.monotonic() + _RETURN_SECONDS
        while (found := self._connected()) is None and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        self._connection = found
        return "HAProxy stopped, or was reloaded" if found else f"HAProxy stopped: {self._why}"

    def _connected(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(str(self._path))
        except OSError as error:
            self._why = f"{self._path}: {error.strerror or error}"
            connection.close()
            return None
        # Otherwise recv() would wait that long, whatever its flags.
        connection.settimeout(0)
        return connection


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
