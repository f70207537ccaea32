"""Steers new connections to one HAProxy while another one listens on the same addresses. EFFECTS.

The kernel distributes new connections by a hash (SO_REUSEPORT), and those that the old HAProxy has not
accepted when it closes its socket are reset. So the agent makes the kernel choose the new one's socket
(SO_ATTACH_REUSEPORT_CBPF), which takes no privilege: HAProxy hands over its sockets to its own user alone.

A socket's index in its group changes when another one is closed (reuseport_detach_sock()), so it is never
assumed: a connection of the agent's own has to arrive at its HAProxy. For an index that no socket has, as
after the other HAProxy's end, the kernel uses its hash again.
"""

import ctypes
import os
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import PurePath

from nodeagent.components.relay.haproxy_config import STEERING_SOURCES
from nodeagent.components.relay.haproxy_sockets import Unreachable, ask
from nodeagent.components.relay.ports import listening_sockets
from nodeagent.model.addresses import Endpoint

# include/uapi/asm-generic/socket.h
_ATTACH, _DETACH = 51, 68
# include/uapi/linux/filter.h: struct sock_filter (the one instruction is BPF_RET | BPF_K), struct sock_fprog.
_RETURN = 0x06
_INSTRUCTION = struct.Struct("=HBBI")
_PROGRAM = struct.Struct("@HP")

# HAProxy sends its descriptors in messages of so many, and waits for four bytes before the next one.
_MOST_DESCRIPTORS = 252
_COUNT = struct.Struct("=i")
_MOST_SOCKETS = 1 << 15
_MOST_BYTES = 1 << 23
"""Of its answer: 20,000 connections."""

_SECONDS = 2.0
_TRIES = 2
_PAUSES = (0.0, 0.005, 0.02)
"""Before each look for a connection: it may wait for another thread of HAProxy's."""
_AT_ONCE = 100
"""How many connections the agent makes at a time: each takes a descriptor."""
_SESSION = re.compile(r" proto=tcpv[46] src=(\S+):(\d{1,5}) ")


def steer(endpoints: AbstractSet[Endpoint], stats_socket: PurePath) -> frozenset[Endpoint]:
    """Make new connections arrive at this HAProxy; return shared endpoints. Idempotent. Raises OSError."""
    shared = failed = frozenset(_shared(endpoints))
    for _ in range(_TRIES):
        if groups := _shared(failed):
            with _sockets_of(stats_socket) as own:
                failed = _steer(groups, own, stats_socket)
        if not groups or not failed:
            return shared
    raise OSError(f"no index leads to this HAProxy at {', '.join(sorted(map(str, failed)))}")


def responds(endpoint: Endpoint) -> bool:
    """Whether HAProxy ends a connection of the agent's there within two seconds."""
    try:
        with _connected(endpoint) as connection:
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except OSError:
        return False


def _shared(endpoints: AbstractSet[Endpoint]) -> dict[Endpoint, int]:
    count = Counter(sock.endpoint for sock in listening_sockets())
    return {endpoint: count[endpoint] for endpoint in endpoints if count[endpoint] > 1}


def _steer(
    groups: Mapping[Endpoint, int], own: Mapping[Endpoint, socket.socket], stats_socket: PurePath
) -> frozenset[Endpoint]:
    """Try the indexes of these groups, the last first; return the groups for which none is verified."""
    left = set(groups)
    for index in reversed(range(max(groups.values()))):
        tried = [endpoint for endpoint in left & own.keys() if index < groups[endpoint]]
        # The kernel chooses the socket with this index in each group.
        instruction = ctypes.create_string_buffer(_INSTRUCTION.pack(_RETURN, 0, 0, index))
        for endpoint in tried:
            program = _PROGRAM.pack(1, ctypes.addressof(instruction))
            own[endpoint].setsockopt(socket.SOL_SOCKET, _ATTACH, program)
        for first in range(0, len(tried), _AT_ONCE):
            left -= _arriving(tried[first : first + _AT_ONCE], stats_socket)
    # If one has ended meanwhile, a hash may have led the connection here.
    now = _shared(groups.keys())
    left |= {endpoint for endpoint in groups if now.get(endpoint) != groups[endpoint]}
    for endpoint in left & own.keys():
        own[endpoint].setsockopt(socket.SOL_SOCKET, _DETACH, 0)
    return frozenset(left)


def _arriving(endpoints: Collection[Endpoint], stats_socket: PurePath) -> set[Endpoint]:
    """Connect to each; return those whose connection is one of HAProxy's sessions."""
    with ExitStack() as stack:
        sources = {}
        for endpoint in endpoints:
            sources[endpoint] = stack.enter_context(_connected(endpoint)).getsockname()[:2]
        clients: set[tuple[str, int]] = set()
        for pause in _PAUSES:
            time.sleep(pause)
            sessions = ask(stats_socket, "show sess", _SECONDS, _MOST_BYTES)
            if isinstance(sessions, Unreachable):
                raise OSError(str(sessions))
            clients = {(address, int(port)) for address, port in _SESSION.findall(sessions)}
            if clients.issuperset(sources.values()):
                break
        return {endpoint for endpoint, source in sources.items() if source in clients}


def _connected(endpoint: Endpoint) -> socket.socket:
    source = (STEERING_SOURCES[endpoint.address.version], 0)
    return socket.create_connection((str(endpoint.address), endpoint.port), _SECONDS, source)


@contextmanager
def _sockets_of(stats_socket: PurePath) -> Iterator[dict[Endpoint, socket.socket]]:
    """Yield the TCP sockets on which the HAProxy behind this socket listens, and close them at the end."""
    with ExitStack() as stack, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(str(stats_socket))
        connection.sendall(b"_getsocks\n")
        count = _COUNT.unpack(connection.recv(_COUNT.size, socket.MSG_WAITALL))[0]
        if count > _MOST_SOCKETS:
            raise OSError(f"{stats_socket}: {count} descriptors are not HAProxy's")
        arrived = 0
        sockets: list[socket.socket] = []
        while arrived < count:
            _, descriptors, flags, _ = socket.recv_fds(
                connection, 1 << 16, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
            arrived += len(descriptors)
            for descriptor in descriptors:
                try:
                    sockets.append(stack.enter_context(socket.socket(fileno=descriptor)))
                except OSError:
                    os.close(descriptor)  # it is not a socket
            if not descriptors or flags & socket.MSG_CTRUNC:
                raise OSError(f"{stats_socket}: {arrived} of {count} descriptors arrived")
            try:
                connection.sendall(_COUNT.pack(arrived))
            except (BrokenPipeError, ConnectionResetError):
                continue  # HAProxy does not wait for this after the last ones
        yield {
            Endpoint(ip_address(name[0]), name[1]): sock
            for sock in sockets
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
            for name in [sock.getsockname()]
        }
