"""Holds ports for HAProxy while it starts or reloads, and finds those that another program has.

HAProxy refuses a whole configuration when one of its binds fails. An ordinary user can bind any port from
`net.ipv4.ip_unprivileged_port_start` on, even on an address that the node does not have yet (IP_FREEBIND).
A socket that is bound with SO_REUSEPORT keeps all other users from its port, and leaves it to those of the
same user (inet_csk_get_port()): HAProxy. Nothing listens on it, so it gets no connection.
"""

import errno
import os
import resource
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from nodeagent.appliers.relay.listening_sockets import port_holders, port_sockets
from nodeagent.model.addresses import Endpoint
from nodeagent.model.facts import port_holder

_SPARE_DESCRIPTORS = 256


@contextmanager
def reserved(endpoints: Iterable[Endpoint]) -> Iterator[dict[Endpoint, str]]:
    """Keeps other users from these ports as long as the block lasts.

    Ports below `ip_unprivileged_port_start`, which no ordinary user can have, are not held where this process
    lacks CAP_NET_BIND_SERVICE; whether somebody listens there is looked up.

    Yields:
        Those that another program has already, each with its user as far as the kernel tells.
    """
    wanted = sorted(set(endpoints), key=Endpoint.sort_key)
    _make_room(len(wanted))
    with ExitStack() as held:
        reasons = {endpoint: _bind(held.enter_context(_socket(endpoint)), endpoint) for endpoint in wanted}
        holders = port_holders(port_sockets(), os.geteuid())
        taken: dict[Endpoint, str] = {}
        for endpoint, reason in reasons.items():
            uid = port_holder(holders, endpoint)
            if reason == errno.EADDRINUSE or (reason == errno.EACCES and uid is not None):
                taken[endpoint] = "an unknown user" if uid is None else f"user {uid}"
        yield taken


def missing(endpoints: Iterable[Endpoint]) -> tuple[tuple[Endpoint, str], ...]:
    """Those endpoints that can't be bound here, with the reason: no such address, or another program has it.

    HAProxy 2.6 does not say why a reload failed; this finds the usual causes. Nothing listens meanwhile, and
    a relay that shares its ports (SO_REUSEPORT) is no hindrance.
    """
    found = []
    for endpoint in sorted(set(endpoints), key=Endpoint.sort_key):
        with _socket(endpoint) as attempt:
            reason = _bind(attempt, endpoint)
        # Without the capability for low ports, a bind that is refused to us says nothing of HAProxy's.
        if reason not in {0, errno.EACCES}:
            found.append((endpoint, os.strerror(reason)))
    return tuple(found)


def _make_room(count: int) -> None:
    """Raises this process's own soft limit of descriptors, where so many more don't fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed and (hard == resource.RLIM_INFINITY or soft < hard):
        room = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))


def _bind(attempt: socket.socket, endpoint: Endpoint) -> int:
    """The error by which it failed; 0 if it did not."""
    attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        attempt.bind((str(endpoint.address), endpoint.port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _socket(endpoint: Endpoint) -> socket.socket:
    return socket.socket(socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET)
