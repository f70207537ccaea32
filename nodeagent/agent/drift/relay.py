"""Watches HAProxy by a connection to its master's socket, which ends with the master.

The socket works for a sidecar in another pid namespace, where pidfd_open(2) does not. HAProxy 2.6 does this:
the master never times out an idle connection (held for 500 s; the statistics socket would after 10); it ends
when its worker dies (mworker_catch_sigchld(), without `no-exit-on-failure`), the worker when its master dies;
and a reload closes the connection, since the master executes itself again. Its listening socket stays open
meanwhile.
"""

import os
import socket
import time
from pathlib import Path
from typing import ClassVar

from nodeagent.agent import inotify
from nodeagent.agent.drift.watcher import OnDrift, Watcher
from nodeagent.agent.inotify import EventsLostError, Inotify
from nodeagent.components.component import ComponentName
from nodeagent.components.relay.haproxy_sockets import Processes, Unreachable, read_processes
from nodeagent.components.relay.state import RelayState

_RETURN_SECONDS = 0.3
"""How long HAProxy may not respond before it counts as ended: a reload takes a fraction of it."""
_PAUSE_SECONDS = 0.02
_ASK_SECONDS = 0.2
_SILENT_SECONDS = 1.0
"""Time between two attempts while a socket accepts connections without an answer: that makes no event."""

_Identity = tuple[int, tuple[int, ...], int]
"""A HAProxy's master, its workers, its number of reloads. Process ids as HAProxy sees them."""


class RelayWatcher(Watcher[RelayState, Inotify]):
    """Notices that HAProxy died, was restarted or reloaded by another program, or answers again.

    While HAProxy does not respond, its directory is watched for the socket.

    Args:
        master_socket: Where HAProxy's master listens; its directory must exist.
        on_drift: See `Watcher`; the component is "relay".
    """

    component: ClassVar[ComponentName] = "relay"

    def __init__(self, master_socket: Path, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._path = master_socket
        self._connection: socket.socket | None = None
        self._why = ""
        self._found: _Identity | None = None
        self._known: _Identity | None = None
        self._begun = False
        self._until = 0.0
        self._silent = False
        self._running = True

    def expect(self, state: RelayState) -> None:
        """See `Watcher`. Without listeners, HAProxy may end; before the first call it is expected to run."""
        with self._lock:
            self._running = bool(state.listeners)

    def _open(self) -> Inotify:
        return Inotify()

    def _begin(self, source: Inotify) -> None:
        source.watch_directory(
            self._path.parent, inotify.CREATE | inotify.MOVED_TO | inotify.DELETE_SELF | inotify.MOVE_SELF
        )
        self._await_return()

    def _close(self) -> None:
        self._hang_up()
        super()._close()

    def _descriptors(self) -> tuple[int, ...]:
        connection = () if self._connection is None else (self._connection.fileno(),)
        return (*super()._descriptors(), *connection)

    def _timeout(self) -> float | None:
        if self._connection is not None:
            return None
        if time.monotonic() < self._until:
            return _PAUSE_SECONDS
        if self._known is not None and not self._quiet:
            return 0.0  # the time has expired since the last judgement
        return _SILENT_SECONDS if self._silent else None

    def _trouble(self) -> str:
        return "" if self._connection else f"HAProxy does not answer: {self._why}"

    def _read(self, source: Inotify) -> None:
        if self._socket_appeared(source):
            self._await_return()
        if self._connection is not None and _ended(self._connection):
            self._hang_up()
            self._await_return()
        if self._connection is None:
            self._call()
        elif self._settling:
            # nodeagent's reload may be done before the closed connection is noticed here.
            self._found = _identity(read_processes(self._path, _ASK_SECONDS)) or self._found
        if self._connection is not None and (self._quiet or self._settling or not self._begun):
            self._known = self._found
        self._begun = True

    def _judge(self) -> str:
        if self._connection is None:
            # Another attempt follows unless the time has expired.
            if self._known is None or time.monotonic() < self._until:
                return ""
            self._known = None
            return f"HAProxy has stopped: {self._why}" if self._running else ""
        before, self._known = self._known, self._found
        if before is None:
            return "HAProxy answers again"
        return "" if before == self._found else "HAProxy was restarted or reloaded by another program"

    def _socket_appeared(self, source: Inotify) -> bool:
        """Read the directory's events; raise FileNotFoundError if the directory no longer exists."""
        appeared = False
        try:
            for event in source.fetch():
                if event.mask & (inotify.DELETE_SELF | inotify.MOVE_SELF):
                    raise FileNotFoundError(2, "the directory was moved or deleted", str(self._path.parent))
                appeared |= event.name == self._path.name
        except EventsLostError:
            return True
        return appeared

    def _await_return(self) -> None:
        self._until = time.monotonic() + _RETURN_SECONDS

    def _call(self) -> None:
        """Connect, and keep the connection if a master with a worker answers."""
        self._silent = False
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_ASK_SECONDS)
        try:
            connection.connect(str(self._path))
        except OSError as error:
            connection.close()
            self._why = f"{self._path}: {os.strerror(error.errno) if error.errno else error}"
            return
        # Asked over a separate connection: the held one has nothing to read until it ends.
        found = read_processes(self._path, _ASK_SECONDS)
        self._found = _identity(found)
        if self._found is None:
            connection.close()
            self._silent = True
            self._why = str(found) if isinstance(found, Unreachable) else "its master has no worker"
            return
        # Otherwise recv() would wait that long, whatever its flags.
        connection.settimeout(0)
        self._connection = connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _identity(found: Processes | Unreachable) -> _Identity | None:
    """Return the processes; None if HAProxy does not answer, or no worker serves."""
    if isinstance(found, Unreachable) or not found.workers:
        return None
    return found.master, found.workers, found.reloads
