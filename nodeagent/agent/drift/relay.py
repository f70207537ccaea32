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

from nodeagent.agent.drift.watcher import OnDrift, Watcher
from nodeagent.components.component import ComponentName
from nodeagent.components.relay.haproxy_sockets import Unreachable, read_processes
from nodeagent.components.relay.state import RelayState

_RETURN_SECONDS = 0.3
"""How long HAProxy may not respond before it counts as ended: a reload takes a fraction of it."""
_PAUSE_SECONDS = 0.02
_ASK_SECONDS = 0.2
_ABSENT_SECONDS = 0.5
"""Time between two attempts after that. An attempt takes 0.1 ms if there is no socket."""

_ANOTHER = "HAProxy was restarted or reloaded by another program"

_Identity = tuple[int, tuple[int, ...], int]
"""A HAProxy's master, its workers, its number of reloads. Process ids as HAProxy sees them."""


class _Master:
    """A connection to HAProxy's master, as long as one with a worker answers."""

    def __init__(self, path: Path) -> None:
        self.identity: _Identity | None = None
        self.why = ""
        self._path = path
        self._connection: socket.socket | None = None

    def fileno(self) -> int:
        """Return the descriptor to poll for its end; -1 without a connection."""
        return -1 if self._connection is None else self._connection.fileno()

    def close(self) -> None:
        """Hang up; idempotent."""
        self.identity = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def refresh(self) -> None:
        """Connect, if there is no connection or it has ended."""
        if self._connection is not None:
            if not _ended(self._connection):
                return
            self.close()
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(_ASK_SECONDS)
        try:
            self._connection.connect(str(self._path))
        except OSError as error:
            self.why = f"{self._path}: {os.strerror(error.errno) if error.errno else error}"
        else:
            self.identify()
        if self.identity is None:
            self.close()
        else:
            # Otherwise recv() would wait that long, whatever its flags.
            self._connection.settimeout(0)

    def identify(self) -> None:
        """Ask over a separate connection: the held one has nothing to read until it ends."""
        found = read_processes(self._path, _ASK_SECONDS)
        if not isinstance(found, Unreachable) and found.workers:
            self.identity = found.master, found.workers, found.reloads
        else:
            self.why = str(found) if isinstance(found, Unreachable) else "its master has no worker"


class RelayWatcher(Watcher[RelayState, _Master]):
    """Notices that HAProxy died, was restarted or reloaded by another program, or answers again."""

    component: ClassVar[ComponentName] = "relay"

    def __init__(self, master_socket: Path, on_drift: OnDrift) -> None:
        super().__init__(on_drift)
        self._path = master_socket
        self._known: _Identity | None = None
        self._until = 0.0
        self._needed = True

    def expect(self, state: RelayState) -> None:
        """See `Watcher`. Without listeners, HAProxy may end; before the first call it is expected to run."""
        with self._lock:
            self._needed = bool(state.listeners)

    def _open(self) -> _Master:
        return _Master(self._path)

    def _begin(self, source: _Master) -> None:
        source.refresh()
        self._known = source.identity

    def _timeout(self, source: _Master) -> float | None:
        if source.identity is not None:
            return None
        return _PAUSE_SECONDS if time.monotonic() < self._until else _ABSENT_SECONDS

    def _trouble(self, source: _Master) -> str:
        return "" if source.identity else f"HAProxy does not answer: {source.why}"

    def _read(self, source: _Master) -> None:
        before = source.identity
        source.refresh()
        if before is not None and source.identity is None:
            self._until = time.monotonic() + _RETURN_SECONDS
        if self._own_change_ended and source.identity is not None:
            # nodeagent's reload may be done before the end of the connection is noticed here.
            source.identify()
        if (self._quiet or self._own_change_ended) and source.identity is not None:
            self._known = source.identity

    def _judge(self, source: _Master) -> str:
        found = source.identity
        if found is None and time.monotonic() < self._until:
            return ""
        before, self._known = self._known, found
        if before == found:
            return ""
        if found is None:
            return f"HAProxy has stopped: {source.why}" if self._needed else ""
        return "HAProxy answers again" if before is None else _ANOTHER


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
