"""Holds the relay's ports, so that only HAProxy can listen there, and finds those that another program has.

HAProxy refuses a whole configuration when one of its binds fails. An ordinary user can bind any port from
`net.ipv4.ip_unprivileged_port_start` on, even on an address that the node does not have yet (IP_FREEBIND).
A socket that is bound with SO_REUSEPORT, and without SO_REUSEADDR, keeps all other users from its port, and
leaves it to those of the same user (inet_csk_get_port()): HAProxy. Nothing listens on it, so it gets no
connection. With SO_REUSEADDR on both, another user could listen there, for Linux counts only sockets that
listen as a conflict then.
"""

import errno
import fcntl
import os
import resource
import socket
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from nodeagent.components.relay.listening_sockets import port_holders, port_sockets
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint
from nodeagent.model.facts import port_holder

# The numbers below are left to the rest of the process: select(2) knows no higher ones, and watchdog uses it.
_FIRST_DESCRIPTOR = 1024


class HeldPorts:
    """Ports that this process keeps from other users, one file descriptor each, until it ends.

    A socket stays bound when its address is removed from the node, so the port is still held when the address
    is added again.
    """

    def __init__(self) -> None:
        self._descriptors: dict[Endpoint, int] = {}

    def hold(self, endpoints: Iterable[Endpoint]) -> dict[Endpoint, str]:
        """Hold these too. Idempotent.

        Ports below `ip_unprivileged_port_start`, which no ordinary user can have, are not held where this
        process lacks CAP_NET_BIND_SERVICE; whether another program listens there is looked up. An address
        that the node does not have is not held either.

        Returns:
            Those that another program has already, each with its user as far as the kernel shows it. A
            connection of another user's earlier listener keeps its port for a minute (TIME_WAIT).

        Raises:
            ApplyError: there are too few file descriptors; the ports held before are still held.
        """
        new = sorted(set(endpoints) - self._descriptors.keys(), key=Endpoint.sort_key)
        _make_room(len(self._descriptors) + len(new))
        try:
            refused = {endpoint: reason for endpoint in new if (reason := self._bind(endpoint))}
        except OSError as error:
            raise ApplyError(
                f"the relay's {len(new)} new ports could not be held: {error.strerror}. The relay was left "
                "as it was. Raise the limit of file descriptors (the container runtime's LimitNOFILE)."
            ) from error
        if not refused:
            return {}
        holders = port_holders(port_sockets(), os.geteuid())
        taken: dict[Endpoint, str] = {}
        for endpoint, reason in refused.items():
            uid = port_holder(holders, endpoint)
            if reason == errno.EADDRINUSE or (reason == errno.EACCES and uid is not None):
                taken[endpoint] = "an unknown user" if uid is None else f"user {uid}"
        return taken

    def keep(self, endpoints: AbstractSet[Endpoint] = frozenset()) -> None:
        """Release all but these."""
        for endpoint in self._descriptors.keys() - endpoints:
            os.close(self._descriptors.pop(endpoint))

    def _bind(self, endpoint: Endpoint) -> int:
        with _socket(endpoint) as attempt:
            reason = _bind(attempt, endpoint)
            if not reason:
                number = fcntl.fcntl(attempt, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
                self._descriptors[endpoint] = number
        return reason


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
    """Raises this process's own soft limit of descriptors, where so many ports don't fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FIRST_DESCRIPTOR + count
    if soft != resource.RLIM_INFINITY and soft < needed and (hard == resource.RLIM_INFINITY or soft < hard):
        room = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (room, hard))


def _bind(attempt: socket.socket, endpoint: Endpoint) -> int:
    """The error by which it failed; 0 if it did not."""
    attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        attempt.bind((str(endpoint.address), endpoint.port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _socket(endpoint: Endpoint) -> socket.socket:
    return socket.socket(socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET)
