"""Ends the connections of a HAProxy whose pod ends: idle ones soon, those in use after a while at the latest.

After SIGUSR1, HAProxy itself closes idle connections in HTTP mode only: in TCP mode it can't know that a
connection is between two requests, and leaves it alone until `hard-stop-after`. Its statistics socket is
closed by then. The master's socket still reaches each worker, those of earlier reloads included (management
manual 9.4), and `show sess` shows how much is left of a connection's idle timeout.
"""

import re
import select
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from nodeagent.components.relay.haproxy_config import FIN_SECONDS, IDLE_SECONDS
from nodeagent.components.relay.haproxy_sockets import Unreachable, ask, read_processes

_BEGIN_SECONDS = 10.0
"""After SIGTERM to the agent: preStop of the relay's container takes five seconds of it."""
_LOOK_SECONDS = 1.0
_ASK_SECONDS = 5.0
_MOST_BYTES = 1 << 23
"""Of one answer: 20,000 connections. Those beyond are seen once some of these are closed."""
_COMMANDS = 100
"""That fit into HAProxy's buffer of 16 kB, and are read at once."""

_SESSION = re.compile(r"(?P<id>0x[0-9a-f]+): proto=tcpv[46] ")
# In 2.6 the rest of a channel's read timeout, from 2.8 on that of a connection's: empty where there is none.
_LEFT = re.compile(r"\b(?:rx|rex)=(?P<left>[0-9dhms]+)")
# The same for data that a slow reader has not taken yet.
_PENDING = re.compile(r"\b(?:wx|wex)=\d")
_PART = re.compile(r"(\d+)([dhms])")
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


class DrainProgress(Struct, frozen=True):
    """One look at a HAProxy that drains: how many connections were `closed`, and how many are `left`."""

    closed: int
    left: int


def drain(
    master_socket: Path, idle_seconds: float, longest_seconds: float, begin_seconds: float = _BEGIN_SECONDS
) -> Iterator[DrainProgress]:
    """Close connections of a HAProxy that was told to end, each second, until it has ended.

    A connection with data on their way, in whichever direction, is in use. One that became busy in the moment
    between a look and the close is closed: any server that closes idle connections does so.

    Args:
        master_socket: its master's socket.
        idle_seconds: connections without a byte for so long are closed; seconds before the call count.
        longest_seconds: so long after HAProxy began to end, all are closed.
        begin_seconds: if HAProxy was not told to end by then, it goes on, and nothing is closed.

    Yields:
        Each look at it, from the moment on in which it begins to end.
    """
    asked_at = time.monotonic()
    began_at = None
    while not isinstance(found := read_processes(master_socket, _ASK_SECONDS), Unreachable):
        now = time.monotonic()
        if began_at is None and all(_is_stopping(master_socket, pid) for pid in found.workers):
            began_at = now
        if began_at is not None:
            idle = 0.0 if now - began_at >= longest_seconds else idle_seconds
            looks = [_look(master_socket, pid, idle) for pid in (*found.workers, *found.old_workers)]
            yield DrainProgress(sum(look.closed for look in looks), sum(look.left for look in looks))
        elif now - asked_at >= begin_seconds:
            return
        _await_end(master_socket, _LOOK_SECONDS)


def idle_of(session: str) -> tuple[str, float] | None:
    """Pure: the identifier of a session and for how many seconds it was idle.

    Args:
        session: a line of `show sess`.

    Returns:
        None for a line that is not a client's, or tells no timeout.
    """
    match = _SESSION.match(session)
    left = [_seconds(found["left"]) for found in _LEFT.finditer(session)]
    if match is None or not left:
        return None
    if _PENDING.search(session):
        return match["id"], 0.0
    # Where one side has closed its direction, the shorter timeout may hold. Which of the two holds is not
    # shown: the shorter idle time counts.
    most = max(left)
    return match["id"], max(0.0, (FIN_SECONDS if most <= FIN_SECONDS else IDLE_SECONDS) - most)


def _look(path: Path, pid: int, idle_seconds: float) -> DrainProgress:
    answer = ask(path, f"@!{pid} show sess", _ASK_SECONDS, _MOST_BYTES)
    # It has ended meanwhile, or is too busy to answer: the next look tells.
    sessions = [] if isinstance(answer, Unreachable) else [*filter(None, map(idle_of, answer.splitlines()))]
    idle = [identifier for identifier, seconds in sessions if seconds >= idle_seconds]
    _close(path, pid, idle)
    return DrainProgress(len(idle), len(sessions) - len(idle))


def _close(path: Path, pid: int, sessions: Sequence[str]) -> None:
    for first in range(0, len(sessions), _COMMANDS):
        some = sessions[first : first + _COMMANDS]
        ask(path, ";".join(f"@!{pid} shutdown session {each}" for each in some), _ASK_SECONDS)


def _is_stopping(path: Path, pid: int) -> bool:
    answer = ask(path, f"@!{pid} show info", _ASK_SECONDS)
    return not isinstance(answer, Unreachable) and "\nStopping: 1\n" in answer


def _await_end(path: Path, seconds: float) -> None:
    """Wait for the master's end, at most so long."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return
        select.select([connection], [], [], seconds)


def _seconds(text: str) -> float:
    return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
