"""One connection at a time, step by step: TCP, PROXY header, TLS, one HTTP request.

The same as `curl` and `curl --haproxy-protocol`, but with the step at which it ended.
"""

import errno
import re
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from nodeagent.errors import one_line
from nodeagent.model.addresses import Endpoint
from nodeagent.model.objects import ProxyVersion

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class Probe(Struct, frozen=True):
    """One connection to make: to `target`, with a PROXY header or without, in TLS or plain, then `HEAD /`.

    `host` is the requested hostname (SNI and the Host header); without one, the address is used.
    """

    target: Endpoint
    header: ProxyVersion | None = None
    tls: bool = False
    host: str = ""


class Ending(StrEnum):
    """How a probe ended. The first four end before any byte was sent."""

    NOT_ASKED = "not tested: the time for all connections was used up"
    UNREACHABLE = "no route to the address"
    REFUSED = "connection refused"
    CONNECT_TIMEOUT = "no answer to the connection request"
    CLOSED_IN_HANDSHAKE = "closed in the TLS handshake"
    RESET_IN_HANDSHAKE = "reset in the TLS handshake"
    SILENT_IN_HANDSHAKE = "no answer in the TLS handshake"
    NOT_TLS = "an answer that is not TLS"
    TLS_ALERT = "a TLS alert"
    EMPTY_REPLY = "empty reply"
    RESET = "reset before any answer"
    SILENT = "connected, but no answer"
    NOT_HTTP = "an answer that is not HTTP"
    STATUS = "an HTTP status"


class ProbeOutcome(Struct, frozen=True):
    """How one probe ended; `status` is 0 if no HTTP answer was read."""

    ending: Ending
    status: int = 0
    detail: str = ""

    @property
    def works(self) -> bool:
        """Whether the server understood what it was sent: a status other than 400, or its own TLS alert.

        One that sends first (SSH, SMTP), or speaks another protocol, answers as well, and that counts.
        """
        if self.ending is Ending.STATUS:
            return self.status != 400
        return self.ending in {Ending.TLS_ALERT, Ending.NOT_HTTP}

    @property
    def is_unheard(self) -> bool:
        """Whether nothing accepted the connection."""
        return self.ending in {Ending.UNREACHABLE, Ending.REFUSED, Ending.CONNECT_TIMEOUT}

    @property
    def is_cut(self) -> bool:
        """Whether the server accepted it, then closed it or did not respond: mostly, no PROXY header came."""
        tls = {Ending.CLOSED_IN_HANDSHAKE, Ending.RESET_IN_HANDSHAKE, Ending.SILENT_IN_HANDSHAKE}
        return self.ending in tls | {Ending.EMPTY_REPLY, Ending.RESET, Ending.SILENT}

    def __str__(self) -> str:
        if self.ending is Ending.STATUS:
            return f"HTTP {self.status}"
        return f"{self.ending.value} ({self.detail})" if self.detail else self.ending.value


_SIGNATURE_V2 = b"\r\n\r\n\0\r\nQUIT\n"
_VERSION_2_PROXY = 0x21
_TCP_OVER = {4: 0x11, 6: 0x21}


def proxy_line(version: ProxyVersion, source: Endpoint, destination: Endpoint) -> bytes:
    """Return the header that says that `source` connected to `destination`; both are of one family."""
    if version == "v1":
        ends = f"{source.address} {destination.address} {source.port} {destination.port}"
        return f"PROXY TCP{source.address.version} {ends}\r\n".encode("ascii")
    ports = struct.pack("!HH", source.port, destination.port)
    body = source.address.packed + destination.address.packed + ports
    head = struct.pack("!BBH", _VERSION_2_PROXY, _TCP_OVER[source.address.version], len(body))
    return _SIGNATURE_V2 + head + body


PROBE_SECONDS = 5.0
"""For one connection: a SYN may be lost twice (retransmitted after 1 and 3 s)."""
_AT_ONCE = 24
_LONGEST_STATUS_LINE = 1024
_STATUS_LINE = re.compile(rb"HTTP/\S*\s+([0-9]{3})\b")


def ask_each(items: Iterable[_Item], ask: Callable[[_Item], _Answer]) -> dict[_Item, _Answer]:
    """Ask about each item once, 24 at the same time."""
    distinct = list(dict.fromkeys(items))
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return dict(zip(distinct, pool.map(ask, distinct), strict=True))


def ask_all(probes: Iterable[Probe], over: float) -> dict[Probe, ProbeOutcome]:
    """Make every connection once, as `ask_each`; none begins after `over`, in monotonic seconds."""

    def ask_in_time(probe: Probe) -> ProbeOutcome:
        return ask(probe) if time.monotonic() < over else ProbeOutcome(Ending.NOT_ASKED)

    return ask_each(probes, ask_in_time)


def ask(probe: Probe, seconds: float = PROBE_SECONDS) -> ProbeOutcome:
    """Make one connection, and return how it ended."""
    deadline = time.monotonic() + seconds
    connected = _connect(probe.target, deadline)
    if isinstance(connected, ProbeOutcome):
        return connected
    silent, reset = Ending.SILENT_IN_HANDSHAKE, Ending.RESET_IN_HANDSHAKE
    with connected:
        header = proxy_line(probe.header, _own_end(connected), probe.target) if probe.header else b""
        try:
            with _encrypted(connected, probe.host, header, deadline) if probe.tls else connected as stream:
                silent, reset = Ending.SILENT, Ending.RESET
                return _request(stream, probe, b"" if probe.tls else header, deadline)
        except OSError as error:
            return _failed(error, silent, reset)


def arrives_at(target: Endpoint, local: Endpoint) -> bool | None:
    """Connect to `target`, and see in the kernel whether DNAT led the connection to the socket `local` here.

    None if there was no connection, or the kernel's list of sockets can't be read.
    """
    connected = _connect(target, time.monotonic() + PROBE_SECONDS)
    if isinstance(connected, ProbeOutcome):
        return None
    with connected:
        ends = f" {_proc_text(local)} {_proc_text(_own_end(connected))} "
        table = Path("/proc/thread-self/net", "tcp" if local.address.version == 4 else "tcp6")
        try:
            return ends in table.read_text(encoding="ascii")
        except OSError:
            return None


def _proc_text(end: Endpoint) -> str:
    """Return an address and port as in /proc/net/tcp: words of four bytes, in the machine's order."""
    packed = end.address.packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return f"{''.join(f'{int.from_bytes(word, sys.byteorder):08X}' for word in words)}:{end.port:04X}"


def _connect(target: Endpoint, deadline: float) -> socket.socket | ProbeOutcome:
    try:
        return socket.create_connection((str(target.address), target.port), timeout=_left(deadline))
    except TimeoutError:
        return ProbeOutcome(Ending.CONNECT_TIMEOUT)
    except ConnectionRefusedError:
        return ProbeOutcome(Ending.REFUSED)
    except OSError as error:
        words = "" if error.errno in {errno.EHOSTUNREACH, errno.ENETUNREACH} else one_line(error)
        return ProbeOutcome(Ending.UNREACHABLE, detail=words)


def _own_end(connection: socket.socket) -> Endpoint:
    address, port = connection.getsockname()[:2]
    return Endpoint(ip_address(address), port)


def _encrypted(connection: socket.socket, host: str, header: bytes, deadline: float) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # how the connection ends is asked, not whom it reached
    connection.sendall(header)
    connection.settimeout(_left(deadline))
    return context.wrap_socket(connection, server_hostname=host or None)


def _failed(error: OSError, silent: Ending, reset: Ending) -> ProbeOutcome:
    match error:
        case TimeoutError():
            return ProbeOutcome(silent)
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return ProbeOutcome(Ending.CLOSED_IN_HANDSHAKE)
        case ssl.SSLError() if "ALERT" in (reason := (error.reason or "").upper()):
            return ProbeOutcome(Ending.TLS_ALERT, detail=reason.lower().replace("_", " "))
        case ssl.SSLError():
            return ProbeOutcome(Ending.NOT_TLS)
        case ConnectionResetError() | BrokenPipeError():
            return ProbeOutcome(reset)
    return ProbeOutcome(reset, detail=one_line(error))


def _request(connection: socket.socket, probe: Probe, header: bytes, deadline: float) -> ProbeOutcome:
    address = probe.target.address
    host = probe.host or (f"[{address}]" if address.version == 6 else str(address))
    request = f"HEAD / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: nodeagent-doctor\r\nConnection: close\r\n\r\n"
    connection.settimeout(_left(deadline))
    # In one piece, so that a server that reads the header first never finds half of it.
    connection.sendall(header + request.encode("ascii"))
    answer = b""
    while b"\n" not in answer and len(answer) < _LONGEST_STATUS_LINE:
        connection.settimeout(_left(deadline))
        piece = connection.recv(_LONGEST_STATUS_LINE)
        if not piece:
            break
        answer += piece
    if not answer:
        return ProbeOutcome(Ending.EMPTY_REPLY)
    if status := _STATUS_LINE.match(answer):
        return ProbeOutcome(Ending.STATUS, status=int(status[1]))
    return ProbeOutcome(Ending.NOT_HTTP)


def _left(deadline: float) -> float:
    """Return the seconds until the deadline: never 0, which would mean "without waiting" to a socket."""
    return max(deadline - time.monotonic(), 0.001)
