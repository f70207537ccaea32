"""Ends the connections of a HAProxy whose pod ends: idle ones soon, those in use after a while at the latest.

After SIGUSR1, HAProxy itself closes idle connections only in HTTP mode: in TCP mode, it can't know that a
connection is between two requests, and keeps it until `hard-stop-after`. Its statistics socket is closed by
then. The master's socket still reaches each worker, including those of earlier reloads (management manual
9.4), and `show sess` shows how much of a connection's idle timeout is left.
"""

import re
import socket
import time
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodeagent.components.relay.haproxy_config import FIN_SECONDS, IDLE_SECONDS
from nodeagent.components.relay.haproxy_sockets import Silence, Unreachable, ask, read_processes
from nodeagent.linux.netlink import end_tcp, tcp_sockets
from nodeagent.model.addresses import IPNetwork

_BEGIN_SECONDS = 10.0
"""Seconds after SIGTERM to the agent: HAProxy gets its signal five of them later (sidecar.py)."""
_ROUND_SECONDS = 1.0
_ASK_SECONDS = 5.0
_MOST_BYTES = 1 << 23
"""Bytes of one answer: 20,000 connections. The others are listed once some of these are closed."""
_COMMANDS = 100
"""The number that fits into HAProxy's buffer of 16 kB, and is read at once."""

_BUSY = frozenset({Silence.LATE, Silence.CUT})
"""A process listens, but it is too busy to answer, or executes itself again."""

_COUNT = re.compile(r"^CurrConns: (\d{1,9})$", re.MULTILINE)
# include/net/tcp_states.h: established, or closed by one side.
_OPEN = (1, 4, 5, 8)

_SESSION = re.compile(r"(?P<id>0x[0-9a-f]+): proto=tcpv[46] ")
# In 2.6 the rest of a channel's read timeout, from 2.8 on that of a connection's: empty if there is none.
_LEFT = re.compile(r"\b(?:rx|rex)=(?P<left>[0-9dhms]+)")
# The same for data that a slow reader has not read yet.
_PENDING = re.compile(r"\b(?:wx|wex)=\d")
_PART = re.compile(r"(\d{1,9})([dhms])")
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


class DrainProgress(Struct, frozen=True):
    """One round of draining a HAProxy: how many connections were `closed`, and how many are `left`."""

    closed: int
    left: int


def drain(
    master_socket: Path, idle_seconds: float, longest_seconds: float, begin_seconds: float = _BEGIN_SECONDS
) -> Iterator[DrainProgress]:
    """Close connections of a HAProxy that got a signal to end, each second, until it has ended.

    A connection with data in transit, in either direction, is in use. One that becomes busy in the moment
    between the check and the close is closed: any server that closes idle connections does that.

    A master that does not answer in time has not ended: a node that is shut down is often busy.

    Args:
        master_socket: its master's socket.
        idle_seconds: connections without a byte for this long are closed; seconds before the call count.
        longest_seconds: this long after HAProxy began to end, all are closed.
        begin_seconds: if HAProxy is not known to end by then, it continues, and nothing is closed.

    Yields:
        The result of each round, from the moment in which it begins to end.
    """
    asked_at = time.monotonic()
    began_at = None
    while True:
        found = read_processes(master_socket, _ASK_SECONDS)
        now = time.monotonic()
        if isinstance(found, Unreachable):
            if found.why not in _BUSY:
                return
            pids: tuple[int, ...] = ()
        else:
            pids = (*found.workers, *found.old_workers)
            infos = (_answer(master_socket, pid, "show info") for pid in found.workers)
            if began_at is None and all("\nStopping: 1\n" in info for info in infos):
                began_at = now
        if began_at is None:
            if now - asked_at >= begin_seconds:
                return
        elif pids:
            idle = 0.0 if now - began_at >= longest_seconds else idle_seconds
            rounds = [_close_idle(master_socket, pid, idle) for pid in pids]
            yield DrainProgress(sum(each.closed for each in rounds), sum(each.left for each in rounds))
        _await_end(master_socket, _ROUND_SECONDS)


def trim(
    master_socket: Path, pids: Iterable[int], ranges: Iterable[IPNetwork], most: int, uid: int | None
) -> None:
    """Close connections, so that these processes together have at most `most`.

    HAProxy's limits count in each process alone, and a reload leaves the one before with its connections. The
    clients that have the most lose theirs, so what one holds costs no other a connection. By the kernel:
    HAProxy's own `shutdown session` waits until a client that reads nothing has read what is on its way.

    Args:
        master_socket: their master's socket.
        pids: a process that is too busy to answer counts at the next call.
        ranges: of the relay addresses.
        most: connections that stay.
        uid: HAProxy's user; None if it is not known. Any user of the node can bind sockets to a relay address
            and connect them to thousands of peers, and the share of each client would be none.

    Raises:
        OSError: as `end_tcp`.
    """
    infos = (_COUNT.search(_answer(master_socket, pid, "show info")) for pid in pids)
    if sum(int(count[1]) for count in infos if count) <= most:
        return
    held: dict[str, list[Any]] = {}
    for each in tcp_sockets(_OPEN):
        address = ip_address(each["idiag_src"])
        if each["idiag_uid"] == uid and any(address in network for network in ranges):
            held.setdefault(each["idiag_dst"], []).append(each)
    share = fair_share(map(len, held.values()), most)
    end_tcp([each for sockets in held.values() for each in sockets[share:]])


def fair_share(counts: Iterable[int], most: int) -> int:
    """Return how many each may have at most, so that all together have at most `most`. Pure."""
    ordered = sorted(counts)
    for index, count in enumerate(ordered):
        share = most // (len(ordered) - index)
        if count > share:
            return share
        most -= count
    return max(ordered, default=0)


def idle_of(session: str) -> tuple[str, float] | None:
    """Return the identifier of a session and how many seconds it was idle. Pure.

    Args:
        session: a line of `show sess`.

    Returns:
        None for a line that is not a client's, or has no timeout.
    """
    match = _SESSION.match(session)
    parts = [_PART.findall(found["left"]) for found in _LEFT.finditer(session)]
    left = [sum(int(number) * _UNITS[unit] for number, unit in each) for each in parts]
    if match is None or not left:
        return None
    if _PENDING.search(session):
        return match["id"], 0.0
    # If one side has closed its direction, the shorter timeout may apply. HAProxy does not show which of the
    # two applies: the shorter idle time counts.
    most = max(left)
    return match["id"], max(0.0, (FIN_SECONDS if most <= FIN_SECONDS else IDLE_SECONDS) - most)


def _close_idle(path: Path, pid: int, idle_seconds: float) -> DrainProgress:
    sessions = [*filter(None, map(idle_of, _answer(path, pid, "show sess").splitlines()))]
    idle = [identifier for identifier, seconds in sessions if seconds >= idle_seconds]
    for first in range(0, len(idle), _COMMANDS):
        some = idle[first : first + _COMMANDS]
        ask(path, ";".join(f"@!{pid} shutdown session {each}" for each in some), _ASK_SECONDS)
    return DrainProgress(len(idle), len(sessions) - len(idle))


def _answer(path: Path, pid: int, command: str) -> str:
    """Return nothing for a process that has ended, or is too busy to answer: the next round shows it."""
    answer = ask(path, f"@!{pid} {command}", _ASK_SECONDS, _MOST_BYTES)
    return "" if isinstance(answer, Unreachable) else answer


def _await_end(path: Path, seconds: float) -> None:
    """Wait for the master's end, at most this long."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(path))
            connection.recv(1)  # It says nothing before a command; select(2) can't handle high descriptors.
        except BlockingIOError:  # It is too busy to accept connections, and more are waiting than may.
            time.sleep(seconds)
        except OSError:
            return
