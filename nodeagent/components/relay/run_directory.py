"""The directory of one HAProxy, with its configuration and sockets, and notifications about it. EFFECTS.

With `relay.launch` it is `relay.runDir`. A relay pod (daemonset/base/relay.yaml) has one of its own below
`relay.runDir`/relay, named by the pod's uid:

| file | written by | what it says |
|---|---|---|
| haproxy.cfg | the pod once, then the agent | the whole configuration |
| master.sock, relay.sock | HAProxy | the master process; the worker that serves |
| lock | the pod | locked (flock) by each of the pod's processes |
| pod | the pod | its name; the file's time is when it started |
| ending | the pod | it got SIGTERM: its HAProxy serves only the connections that it has |
| ready | the agent | it serves, and new connections arrive at it: what the pod's startup probe waits for |
"""

import fcntl
import math
import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from errno import EISDIR, ELOOP, ENOENT, ENOTDIR, ENXIO
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import BinaryIO

from nodeagent.errors import ApplyError, printable
from nodeagent.linux.atomic_file import remove_drafts, replace_file

_WRITABLE_BY_OTHERS = 0o022
_LARGEST = 16 * 1024 * 1024
"""Bytes of a configuration that are read into memory: fifty times those of 10,000 listeners."""
_LONGEST_LINE = 1024
_NOT_A_FILE = {ENOENT, ENOTDIR, ELOOP, EISDIR, ENXIO}
_STARTING_SECONDS = 60.0
"""A directory without a lock is a starting pod's for this long."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

_RETURN_SECONDS = 0.3
"""How long HAProxy may not answer before it counts as ended: a reload takes a fraction of it."""
_AGAIN_SECONDS = 0.02
_CONNECT_SECONDS = 0.2
_ABSENT_SECONDS = 0.5
"""Between two attempts after that. An attempt takes 0.1 ms if there is no socket."""
_LOOK_SECONDS = 1.0
"""So often a new pod's directory is looked for."""
_CHUNK = 65536


class RunDirectory:
    """An HAProxy's directory, which need not exist yet; `of_pod`: a relay pod's."""

    def __init__(self, path: Path, *, of_pod: bool = False) -> None:
        self.path = path
        self._of_pod = of_pod
        self.config = path / "haproxy.cfg"
        self.master_socket = path / "master.sock"
        self.stats_socket = path / "relay.sock"
        self._ready = path / "ready"

    def read(self) -> str | None:
        """Return the configuration; a link, a FIFO or a file without end is none. Raises ApplyError."""
        try:
            content = _content(self.config, _LARGEST)
        except OSError as error:
            raise ApplyError(
                f"{self.config} can't be read: {error.strerror}. Run as root to see the actual state."
            ) from error
        # HAProxy reads bytes; invalid UTF-8 is certainly not nodeagent's, and differs from it in any case.
        return None if content is None else content.decode(errors="replace")

    def install(self, text: str) -> None:
        """Replace the configuration whole. Idempotent. Raises ApplyError."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.stat()
            if status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS:
                raise ApplyError(
                    f"{self.path} belongs to user {status.st_uid} with mode {S_IMODE(status.st_mode):04o}: "
                    "others could change HAProxy's configuration. The relay was left as it was. Make the "
                    f"directory writable by this user alone (chown {os.geteuid()}, chmod 0700), "
                    "or set relay.runDir."
                )
            replace_file(self.config, text.encode(), durable=True)
        except OSError as error:
            raise ApplyError(
                f"{self.config} can't be written: {error}. The relay was left as it was."
            ) from error

    def remove(self) -> None:
        """Remove the relay's files, and the directory if it is then empty. Idempotent; raises ApplyError."""
        try:
            # HAProxy makes a unix socket under another name first (relay.sock.123.tmp); a crash may leave it.
            sockets = (*self.path.glob("*.sock"), *self.path.glob("*.sock.*"))
            pods = (self.path / name for name in ("pod", "ending", "ready", "lock", "lock.new"))
            for file in (self.config, *sockets, *(pods if self._of_pod else ())):
                file.unlink(missing_ok=True)
            if self.path.is_dir():
                remove_drafts(self.config)
                if not any(self.path.iterdir()):
                    self.path.rmdir()
        except OSError as error:
            raise ApplyError(f"the relay's files in {self.path} can't all be removed: {error}.") from error

    @property
    def pod(self) -> str:
        """The relay pod's name, or its directory's; empty if it is no pod's."""
        return (_line(self.path / "pod") or self.path.name) if self._of_pod else ""

    @property
    def owner(self) -> int | None:
        """HAProxy's user: the owner of the socket in a directory closed to others; None without."""
        for file in (self.stats_socket, self.path):
            with suppress(OSError):
                return file.lstat().st_uid
        return None

    @property
    def mark(self) -> str:
        return _line(self._ready)

    def mark_ready(self, mark: str) -> None:
        """Have the pod's startup probe succeed. Raises OSError."""
        replace_file(self._ready, mark.encode(), durable=False)

    def is_ending(self) -> bool:
        return (self.path / "ending").exists()

    def is_gone(self) -> bool:
        """Whether no process of the pod is left; False if that can't be said."""
        try:
            with _opened(self.path / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            with suppress(OSError):
                empty = not any(self.path.iterdir())
                return empty and time.time() - self.path.stat().st_mtime > _STARTING_SECONDS
            return False
        except OSError:
            return False
        return True

    @property
    def started(self) -> int:
        """When HAProxy's worker made its socket: different after each start and reload. 0: there is none."""
        with suppress(OSError):
            return self.stats_socket.lstat().st_mtime_ns
        return 0

    @property
    def age(self) -> tuple[int, str]:
        with suppress(OSError):
            return (self.path / "pod").lstat().st_mtime_ns, self.path.name
        return 0, self.path.name


def pod_directories(run_dir: Path) -> list[RunDirectory]:
    """Return those of all relay pods that are or were on this node, the youngest last."""
    try:
        with os.scandir(run_dir / "relay") as entries:
            paths = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted((RunDirectory(path, of_pod=True) for path in paths), key=lambda directory: directory.age)


def _opened(path: Path) -> BinaryIO:
    # By an opener: what os.fdopen() refuses, a directory, it leaves open.
    return open(path, "rb", opener=lambda name, _: os.open(name, _OPEN))


def _content(path: Path, most: int) -> bytes | None:
    """Return a regular file's content; None if there is none, or it is longer than `most`. Raises OSError."""
    try:
        with _opened(path) as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(most + 1)
            return None if len(content) > most else content
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return None
        raise


def _line(path: Path) -> str:
    with suppress(OSError):
        return printable((_content(path, _LONGEST_LINE) or b"").decode(errors="replace").strip())
    return ""


class RelayWatch:
    """Implements `component.Watch`: an HAProxy ended, was started or reloaded, or answers again.

    By a connection to each master's socket, since a pod has process ids of its own. It never times out: the
    master ends when its worker dies (mworker_catch_sigchld()), the worker when its master dies, and a reload
    closes the connection.
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
        if any(at < math.inf for at in self._silent.values()):
            return _AGAIN_SECONDS
        return _ABSENT_SECONDS if self._silent or not self._connections else _LOOK_SECONDS

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._epoll.close()

    def drain(self) -> str:
        directories = {directory.path: directory for directory in self._directories()}
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
            # A reload leaves the socket's file where it is; nodeagent removes it once it has stopped HAProxy.
            wait = _RETURN_SECONDS if directory.master_socket.exists() else 0.0
            self._silent[path] = time.monotonic() + wait
        ends_at = self._silent.setdefault(path, math.inf)
        if opened := self._connected(directory):
            self._connections[path] = opened
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
