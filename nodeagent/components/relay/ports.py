"""The TCP ports that the relay needs: their holders, and holding them for HAProxy.

HAProxy refuses a whole configuration if one of its binds fails, and an ordinary user can bind any port from
`net.ipv4.ip_unprivileged_port_start` on, even on an address that the node does not have yet (IP_FREEBIND).
A socket with SO_REUSEPORT keeps all other users from its port, but not those of the same user: HAProxy's
(inet_csk_get_port()). With SO_REUSEADDR on both, another user could listen there: it is not set.
"""

import errno
import fcntl
import logging
import os
import resource
import socket
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from msgspec import Struct

from nodeagent.errors import ApplyError
from nodeagent.linux.netlink import tcp_sockets
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.facts import port_holder

_LOG = logging.getLogger("nodeagent")

# include/net/tcp_states.h: TCP_LISTEN; TCP_BOUND_INACTIVE: bound but not listening, since Linux 6.9.
_LISTEN, _BOUND_INACTIVE = 10, 13
_LISTEN_IN_PROC = "0A"
_ANY4, _ANY6 = IPv4Address(0), IPv6Address(0)

# Lower numbers are left for the rest of the process, whatever its limit: ports take none of them.
_FIRST_DESCRIPTOR = 1024


class PortSocket(Struct, frozen=True):
    """A TCP socket that holds a port (`::` for IPv4, too, unless `v6only`), and the user that made it."""

    endpoint: Endpoint
    uid: int
    v6only: bool = False
    listening: bool = True


def port_sockets() -> tuple[PortSocket, ...]:
    """Return those that hold a port in this thread's network namespace; needs no privilege."""
    return _sockets(_LISTEN, _BOUND_INACTIVE)


def listening_sockets() -> tuple[PortSocket, ...]:
    """Return those that listen; faster, since the kernel need not search the table of all ports."""
    return _sockets(_LISTEN)


def _sockets(*states: int) -> tuple[PortSocket, ...]:
    sockets: tuple[PortSocket, ...] = ()
    try:
        sockets = tuple(
            PortSocket(
                endpoint=Endpoint(ip_address(message["idiag_src"]), message["idiag_sport"]),
                uid=message["idiag_uid"],
                v6only=bool(message.get_attr("INET_DIAG_SKV6ONLY")),
                listening=message["idiag_state"] == _LISTEN,
            )
            for message in tcp_sockets(states)
        )
    except Exception as error:  # noqa: BLE001 - for whatever reason, /proc shows them, too
        _LOG.debug("Could not use sock_diag", extra={"fields": {"err": repr(error)}})
    return sockets or from_tables(Path("/proc/thread-self/net"))


def from_tables(proc_net: Path) -> tuple[PortSocket, ...]:
    """Return the listening sockets by /proc/net/tcp and tcp6, which don't show IPV6_V6ONLY."""
    sockets = []
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for row in map(str.split, (proc_net / name).read_text(encoding="ascii").splitlines()[1:]):
                if row[3] == _LISTEN_IN_PROC:
                    digits, _, port = row[1].rpartition(":")
                    # Words of 32 bits, each in the machine's byte order: little-endian wherever it runs.
                    words = (bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
                    endpoint = Endpoint(ip_address(b"".join(words)), int(port, 16))
                    sockets.append(PortSocket(endpoint, int(row[7])))
    return tuple(sockets)


def port_holders(sockets: Iterable[PortSocket], relay_uid: int) -> dict[Endpoint, int]:
    """Return the user ids whose processes hold ports that the relay can't have, by address and port. Pure.

    Linux refuses to bind what another socket has, by the wildcard or not, unless both set SO_REUSEPORT as the
    same user (inet_csk_get_port()). A wildcard counts for every user, and a `::` that is not IPV6_V6ONLY
    (nginx's are) for both families.
    """
    holders: dict[Endpoint, int] = {}
    for sock in sockets:
        address, port = _plain(sock.endpoint.address), sock.endpoint.port
        if address == _ANY6 and not sock.v6only:
            holders.setdefault(Endpoint(_ANY4, port), sock.uid)
        if address in (_ANY4, _ANY6) or sock.uid != relay_uid:
            holders[Endpoint(address, port)] = sock.uid
    return holders


def held_by(sockets: Iterable[PortSocket], uid: int) -> frozenset[Endpoint]:
    """Return the addresses and ports on which only sockets of this user listen. Pure."""
    own: set[Endpoint] = set()
    others: set[Endpoint] = set()
    for sock in sockets:
        endpoint = Endpoint(_plain(sock.endpoint.address), sock.endpoint.port)
        if sock.uid != uid:
            others.add(endpoint)
        elif sock.listening:
            own.add(endpoint)
    return frozenset(own - others)


def _plain(address: IPAddress) -> IPAddress:
    """Return 192.0.2.1 for ::ffff:192.0.2.1: a socket on an IPv4-mapped address has the IPv4 port."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


class HeldPorts:
    """Ports that this process keeps from other users, one file descriptor each, until it ends."""

    def __init__(self) -> None:
        self._descriptors: dict[Endpoint, int] = {}

    def hold(self, endpoints: Iterable[Endpoint]) -> dict[Endpoint, str]:
        """Hold these, too, if this user can; return those of others, with their users. Raises ApplyError."""
        new = sorted(set(endpoints) - self._descriptors.keys(), key=Endpoint.sort_key)
        # Raise this process's own soft limit of descriptors if this many ports don't fit.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = _FIRST_DESCRIPTOR + len(self._descriptors) + len(new)
        if hard != resource.RLIM_INFINITY:
            needed = min(needed, hard)
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        refused: dict[Endpoint, int] = {}
        try:
            for endpoint in new:
                with _attempt(endpoint) as (attempt, reason):
                    if reason:
                        refused[endpoint] = reason
                    else:
                        number = fcntl.fcntl(attempt, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
                        self._descriptors[endpoint] = number
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

    def release_except(self, endpoints: AbstractSet[Endpoint] = frozenset()) -> None:
        for endpoint in self._descriptors.keys() - endpoints:
            os.close(self._descriptors.pop(endpoint))


def unbindable(endpoints: Iterable[Endpoint]) -> tuple[tuple[Endpoint, int], ...]:
    """Return the endpoints that can't be bound here, with the error number."""
    refused = []
    for endpoint in sorted(set(endpoints), key=Endpoint.sort_key):
        with _attempt(endpoint) as (_, reason):
            # Without the capability for low ports, a bind that is denied here says nothing about HAProxy's.
            if reason not in {0, errno.EACCES}:
                refused.append((endpoint, reason))
    return tuple(refused)


@contextmanager
def _attempt(endpoint: Endpoint) -> Iterator[tuple[socket.socket, int]]:
    """Yield a socket after the attempt to bind it there, and the error number; 0 if that succeeded."""
    reason = 0
    with socket.socket(socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            attempt.bind((str(endpoint.address), endpoint.port))
        except OSError as error:
            reason = error.errno or errno.EIO
        yield attempt, reason
