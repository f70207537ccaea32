"""Queries to HAProxy over its unix sockets within a deadline: its master process, and the worker that serves.

The commands are in HAProxy's management manual: 9.4 for the master's socket, 9.1 and 9.3 for the worker's.
"""

import csv
import re
import socket
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import PurePath
from typing import TypeVar

from msgspec import Struct

from nodeagent.components.relay.haproxy_config import SERVER_NAME, parse_proxy_name
from nodeagent.errors import printable
from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ObjectRef

ASK_SECONDS = 2.0
"""For one answer, but to a reload."""
_CHUNK = 65536
_Parsed = TypeVar("_Parsed")

# 1162   master   5 [failed: 0]   0d00h02m07s   2.6.12
_ROW = re.compile(r"(?P<pid>\d+)\s+\w+\s+(?P<reloads>\d+)(?: \[failed: (?P<failed>\d+)\])?\s")

_PAUSE_SECONDS = 0.002

# As "show stat" takes types (management manual 9.3): 1 for frontends, 4 for servers.
_FRONTENDS_AND_SERVERS = 1 + 4
_MOST_STATISTICS = 1 << 24
"""Bytes: those of 10,000 listeners. The container of HAProxy may be an intruder's."""
_MOST_ROWS, _MOST_COLUMNS = 50_000, 500
_LONGEST_VERSION = 40


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
        return self not in {Silence.ABSENT, Silence.REFUSED}


class Unreachable(Struct, frozen=True):
    """A socket that gave no answer, and why."""

    path: str
    why: Silence

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def ask(path: PurePath, command: str, timeout: float, most: int = 1 << 16) -> str | Unreachable:
    """Send a command; return the answer within `timeout` seconds, cut off at `most` bytes, or why not."""
    deadline = time.monotonic() + timeout
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            connection.sendall(command.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)  # the master's socket would wait for further commands
            while len(answer) < most:
                connection.settimeout(max(0.0, deadline - time.monotonic()))
                if not (chunk := connection.recv(_CHUNK)):
                    break
                answer += chunk
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


class Processes(Struct, frozen=True):
    """Ids in HAProxy's own pid namespace, its attempts to reload, and how many of them failed in a row."""

    master: int
    workers: tuple[int, ...]
    old_workers: tuple[int, ...]
    reloads: int
    failed_reloads: int


class Reload(Struct, frozen=True):
    """The master's answer, with its log if it returns one; if it is `refused`, the old worker continues."""

    refused: bool = False
    log: str = ""


def read_processes(path: PurePath) -> Processes | Unreachable:
    """Return them; while the master executes itself again, the query is repeated."""
    deadline = time.monotonic() + ASK_SECONDS
    while True:
        answer = _parsed(path, "show proc", max(0.0, deadline - time.monotonic()), _processes)
        if not isinstance(answer, Unreachable) or answer.why is not Silence.CUT:
            return answer
        if time.monotonic() + _PAUSE_SECONDS >= deadline:
            return answer
        time.sleep(_PAUSE_SECONDS)


def reload_haproxy(path: PurePath, timeout: float) -> Reload | Unreachable:
    """Reload. 2.7 and newer answer `Success=1` or `Success=0`, `--` and a log; older ones hang up."""
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
    """Parse an answer that is complete: an empty line ends each (cli_io_handler in HAProxy's cli.c)."""
    answer = ask(path, command, timeout, most)
    if isinstance(answer, Unreachable):
        return answer
    if not answer.endswith("\n\n"):
        return Unreachable(str(path), Silence.CUT)
    try:
        return parse(answer)
    except Exception:  # noqa: BLE001 - whatever it is that is not understood
        return Unreachable(str(path), Silence.STRANGE)


class ServerState(Struct, frozen=True):
    """One listener's server in HAProxy's own words; `rejected` counts since the last reload."""

    bind: Endpoint
    load_balancer: ObjectRef
    up: bool
    status: str
    check: str
    connections: int = 0
    rejected: int = 0

    @property
    def health(self) -> str:
        counts = f", {self.connections} connections, {self.rejected} rejected" if self.rejected else ""
        return (f"{self.status} ({self.check})" if self.check else self.status) + counts


class Worker(Struct, frozen=True):
    """The worker that serves, and the digest of what it runs: its description, if that is nodeagent's."""

    digest: str
    version: str


def read_worker(path: PurePath) -> Worker | Unreachable:
    """Return the worker that serves."""
    return _parsed(path, "show info", ASK_SECONDS, _worker)


def _worker(answer: str) -> Worker:
    fields = dict(line.split(": ", 1) for line in answer.splitlines() if ": " in line)
    version = fields["Version"].partition("-")[0]
    return Worker(
        fields.get("description", "").removeprefix("nodeagent-"), printable(version[:_LONGEST_VERSION])
    )


def read_servers(path: PurePath) -> tuple[ServerState, ...] | Unreachable:
    """Return the servers of all listeners, sorted by address and port."""
    command = f"show stat -1 {_FRONTENDS_AND_SERVERS} -1"
    return _parsed(path, command, ASK_SECONDS, _servers, _MOST_STATISTICS)


def _servers(answer: str) -> tuple[ServerState, ...]:
    frontends: dict[str, tuple[int, int]] = {}
    states = []
    lines = answer.removeprefix("# ").splitlines()
    if len(lines) > _MOST_ROWS or lines[0].count(",") > _MOST_COLUMNS:
        raise ValueError(f"{len(lines)} rows of {lines[0].count(',')} columns")
    for row in csv.DictReader(lines):
        if row["svname"] == "FRONTEND":
            # dcon: by "tcp-request connection" rules; dreq: by "tcp-request content" rules.
            rejected = int(row.get("dcon") or 0) + int(row.get("dreq") or 0)
            frontends[row["pxname"]] = int(row.get("scur") or 0), rejected
        named = parse_proxy_name(row["pxname"])
        if named is None or row["svname"] != SERVER_NAME:
            continue
        load_balancer, bind = named
        words = (row.get("check_desc") or row.get("check_status", ""), row.get("last_chk", ""))
        connections, rejected = frontends.get(row["pxname"], (0, 0))
        check = ": ".join(word for word in words if word)
        up = row["status"].startswith("UP")  # "UP 1/3" is a server on its way down that still serves
        states.append(ServerState(bind, load_balancer, up, row["status"], check, connections, rejected))
    return tuple(sorted(states, key=lambda state: state.bind.sort_key()))
