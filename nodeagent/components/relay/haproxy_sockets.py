"""Queries to HAProxy over its unix sockets within a deadline: its master process, and the worker that serves.

The commands are in HAProxy's management manual: 9.4, "Master CLI", for the master's socket; 9.1 and 9.3
for the statistics socket of the worker.
"""

import csv
import math
import re
import socket
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import PurePath
from typing import TypeVar

from msgspec import Struct

from nodeagent.components.relay.haproxy_config import SERVER_NAME, parse_proxy_name
from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ObjectRef

_CHUNK = 65536
_Parsed = TypeVar("_Parsed")


class Silence(StrEnum):
    """Why a socket gave no answer."""

    ABSENT = "there is no such socket"
    REFUSED = "no process listens on it any more"
    FORBIDDEN = "this user is not permitted to open it"
    CUT = "the connection was closed before the answer"
    LATE = "no answer in time"
    IMPOSSIBLE = "it can't be opened"
    STRANGE = "its answer is not HAProxy's"

    @property
    def is_running(self) -> bool:
        """Whether a HAProxy may run all the same."""
        return self not in {Silence.ABSENT, Silence.REFUSED}


class Unreachable(Struct, frozen=True):
    """A socket that gave no answer, and why."""

    path: str
    why: Silence

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def ask(path: PurePath, command: str, timeout: float, most: int = 1 << 16) -> str | Unreachable:
    """Send one command and return the whole answer.

    The write side is closed after the command: the master's socket would wait for further commands otherwise
    (management manual 9.4).

    Args:
        path: the socket.
        command: without a newline.
        timeout: seconds for all of it: connecting, sending, reading to the end.
        most: bytes after which a longer answer is cut off.

    Returns:
        The answer, which may be empty; or why there is none.
    """
    deadline = time.monotonic() + timeout
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(command.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            while True:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return Unreachable(str(path), Silence.LATE)
                connection.settimeout(remaining)
                chunk = connection.recv(_CHUNK)
                if not chunk:
                    return answer.decode(errors="replace")
                answer += chunk
                if len(answer) >= most:
                    return answer[:most].decode(errors="replace")
    except OSError as error:
        return Unreachable(str(path), next(why for kinds, why in _SILENCES if isinstance(error, kinds)))


_SILENCES: tuple[tuple[tuple[type[OSError], ...], Silence], ...] = (
    ((FileNotFoundError, NotADirectoryError), Silence.ABSENT),
    ((ConnectionRefusedError,), Silence.REFUSED),
    ((PermissionError,), Silence.FORBIDDEN),
    ((ConnectionResetError, BrokenPipeError), Silence.CUT),
    ((TimeoutError, BlockingIOError), Silence.LATE),
    ((OSError,), Silence.IMPOSSIBLE),
)


# 1162   master   5 [failed: 0]   0d00h02m07s   2.6.12
_ROW = re.compile(r"(?P<pid>\d+)\s+\w+\s+(?P<reloads>\d+)(?: \[failed: (?P<failed>\d+)\])?\s")

_PAUSE_SECONDS = 0.002


class Processes(Struct, frozen=True):
    """The master and its workers, by process id in HAProxy's own pid namespace.

    `reloads` counts attempts; `failed_reloads` those that failed since the last that succeeded.
    """

    master: int
    workers: tuple[int, ...]
    old_workers: tuple[int, ...]
    reloads: int
    failed_reloads: int


class Reload(Struct, frozen=True):
    """The master's answer to `reload_haproxy`, with its log if it returns one (2.7 and newer).

    If it is not `refused`, it may be under way; otherwise, the old worker continues.
    """

    refused: bool = False
    log: str = ""


def read_processes(path: PurePath, timeout: float) -> Processes | Unreachable:
    """Return the processes of the master behind the socket at `path`; `timeout` in seconds.

    A master that executes itself again closes connections for a moment, so the query is repeated until the
    timeout.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = _parsed(path, "show proc", max(0.0, deadline - time.monotonic()), _processes)
        if not isinstance(found, Unreachable) or found.why is not Silence.CUT:
            return found
        if time.monotonic() + _PAUSE_SECONDS >= deadline:
            return found
        time.sleep(_PAUSE_SECONDS)


def reload_haproxy(path: PurePath, timeout: float) -> Reload | Unreachable:
    """Make the master read its configuration again; `timeout` in seconds.

    2.7 and newer answer `Success=1` or `Success=0`, then `--` and the log of the attempt. Older ones answer
    nothing: the connection ends, or is reset, as the master executes itself.
    """
    answer = ask(path, "reload", timeout)
    if isinstance(answer, Unreachable):
        return Reload() if answer.why is Silence.CUT else answer
    verdict, _, log = answer.strip().partition("\n")
    return Reload(verdict.strip() == "Success=0", log.removeprefix("--").strip())


def _processes(answer: str) -> Processes:
    rows: dict[str, list[re.Match[str]]] = {"master": [], "workers": [], "old workers": []}
    heading = "master"
    for line in answer.splitlines():
        if line.startswith("# "):
            heading = line[2:].strip()
        elif heading in rows and (row := _ROW.match(line)):
            rows[heading].append(row)
    (master,) = rows["master"]
    return Processes(
        master=int(master["pid"]),
        workers=tuple(int(row["pid"]) for row in rows["workers"]),
        old_workers=tuple(int(row["pid"]) for row in rows["old workers"]),
        reloads=int(master["reloads"]),
        failed_reloads=int(master["failed"] or 0),
    )


def _parsed(
    path: PurePath, command: str, timeout: float, parse: Callable[[str], _Parsed], most: int = 1 << 16
) -> _Parsed | Unreachable:
    """Parse an answer that is complete: an empty line ends each (cli_io_handler in HAProxy's cli.c).

    A HAProxy that is killed leaves a part of one, which must not count as the whole.
    """
    answer = ask(path, command, timeout, most)
    if isinstance(answer, Unreachable):
        return answer
    if not answer.endswith("\n\n"):
        return Unreachable(str(path), Silence.CUT)
    try:
        return parse(answer)
    except Exception:  # noqa: BLE001 - whatever it is that is not understood
        return Unreachable(str(path), Silence.STRANGE)


# As "show stat" takes types (management manual 9.3): 1 for frontends, 4 for servers.
_FRONTENDS_AND_SERVERS = 1 + 4
_FRONTEND = "FRONTEND"
_MOST_STATISTICS = 1 << 24
"""Bytes: those of 10,000 listeners. The container of HAProxy may be an intruder's."""
_MOST_ROWS, _MOST_COLUMNS = 50_000, 500


class ServerState(Struct, frozen=True):
    """One listener's server, as HAProxy's health check sees it.

    `status` and `check` are HAProxy's own words ("DOWN", "Layer4 connection problem: Connection refused");
    `connections` are the listener's now. `rejected` counts connections since the last reload that were beyond
    a limit (see haproxy_config), or were rejected for what they sent.
    """

    bind: Endpoint
    load_balancer: ObjectRef
    up: bool
    status: str
    check: str
    connections: int = 0
    rejected: int = 0


def read_digest(path: PurePath, timeout: float) -> str | Unreachable:
    """Return the digest of the configuration that the worker behind the socket runs; `timeout` in seconds.

    It is in the description: empty without one, and no digest if that is not nodeagent's.
    """
    return _parsed(path, "show info", timeout, _digest)


def _digest(answer: str) -> str:
    fields = dict(line.split(": ", 1) for line in answer.splitlines() if ": " in line)
    if "Version" not in fields:
        raise ValueError("not an answer of HAProxy's")
    return fields.get("description", "").removeprefix("nodeagent-")


def read_servers(path: PurePath, timeout: float) -> tuple[ServerState, ...] | Unreachable:
    """Return the servers of all listeners, sorted by address and port; `timeout` in seconds."""
    command = f"show stat -1 {_FRONTENDS_AND_SERVERS} -1"
    return _parsed(path, command, timeout, _servers, _MOST_STATISTICS)


def _servers(answer: str) -> tuple[ServerState, ...]:
    frontends: dict[str, tuple[int, int]] = {}
    found = []
    lines = answer.removeprefix("# ").splitlines()
    if len(lines) > _MOST_ROWS or lines[0].count(",") > _MOST_COLUMNS:
        raise ValueError(f"{len(lines)} rows of {lines[0].count(',')} columns")
    for row in csv.DictReader(lines):
        if row["svname"] == _FRONTEND:
            # dcon: by "tcp-request connection" rules; dreq: by "tcp-request content" rules.
            rejected = int(row.get("dcon") or 0) + int(row.get("dreq") or 0)
            frontends[row["pxname"]] = int(row.get("scur") or 0), rejected
        named = parse_proxy_name(row["pxname"])
        if named is None or row["svname"] != SERVER_NAME:
            continue
        load_balancer, bind = named
        words = (row.get("check_desc") or row.get("check_status", ""), row.get("last_chk", ""))
        connections, rejected = frontends.get(row["pxname"], (0, 0))
        state = ServerState(
            bind=bind,
            load_balancer=load_balancer,
            # "UP 1/3" is a server on its way down that still serves.
            up=row["status"].startswith("UP"),
            status=row["status"],
            check=": ".join(word for word in words if word),
            connections=connections,
            rejected=rejected,
        )
        found.append(state)
    return tuple(sorted(found, key=lambda state: state.bind.sort_key()))


_RETURN_SECONDS = 0.3
"""How long HAProxy may not answer before it counts as ended: a reload takes a fraction of it."""
_AGAIN_SECONDS = 0.01
_CONNECT_SECONDS = 0.2
_ABSENT_SECONDS = 0.5
"""Between two attempts after that. An attempt takes 0.1 ms if there is no socket."""


class RelayWatch:
    """Implements `component.Watch`: HAProxy ended, was started or reloaded, or answers again.

    By a connection to its master's socket, which ends with the master. It works for a sidecar in another pid
    namespace, where pidfd_open(2) does not. HAProxy 2.6 does this: the master never times out an idle
    connection (held for 500 s; the statistics socket would after 10); it ends when its worker dies
    (mworker_catch_sigchld(), without `no-exit-on-failure`), the worker when its master dies; and a reload
    closes the connection, since the master executes itself again.
    """

    def __init__(self, master_socket: PurePath) -> None:
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

    def drain(self) -> str:
        """See `component.Watch`. If the connection has ended, wait as long as a reload takes."""
        if self._connection is None:
            self._connection = self._connected()
            return "" if self._connection is None else "HAProxy answers again"
        try:
            if self._connection.recv(_CHUNK):
                return ""
        except BlockingIOError:
            return ""
        except OSError:
            pass  # it was reset
        self.close()
        deadline = time.monotonic() + _RETURN_SECONDS
        while (found := self._connected()) is None and time.monotonic() < deadline:
            time.sleep(_AGAIN_SECONDS)
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
        connection.settimeout(0)  # recv() would wait that long, whatever its flags
        return connection
