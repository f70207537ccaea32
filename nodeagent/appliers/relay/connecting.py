"""Which listeners accept a connection: found out by connecting, as the node's own traffic will."""

import errno
import os
import selectors
import socket
import time
from collections.abc import Iterable
from itertools import islice
from typing import cast

from nodeagent.model.addresses import Endpoint

# Well under the usual soft limit of 1024 descriptors.
_AT_ONCE = 256


def answering(endpoints: Iterable[Endpoint], timeout: float) -> frozenset[Endpoint]:
    """Those endpoints to which a TCP connection can be made now.

    All are tried at the same time (256 at most). The relay opens a connection to its server for each and
    closes it again: the server sees a PROXY line and the end.

    Args:
        endpoints: of either family, in any order.
        timeout: seconds for all of them; one that has not answered by then does not answer.
    """
    deadline = time.monotonic() + timeout
    waiting = iter(sorted(set(endpoints), key=Endpoint.sort_key))
    found: set[Endpoint] = set()
    while batch := tuple(islice(waiting, _AT_ONCE)):
        found |= _connect(batch, deadline)
    return frozenset(found)


def missing(endpoints: Iterable[Endpoint]) -> tuple[tuple[Endpoint, str], ...]:
    """Those endpoints that nobody could bind here, with the reason: no such address, or taken by a stranger.

    HAProxy 2.6 does not say why a reload failed; this finds the usual causes. Nothing listens meanwhile, and
    a relay that shares its ports (SO_REUSEPORT) is no hindrance.
    """
    return tuple(
        (endpoint, os.strerror(reason))
        for endpoint in sorted(set(endpoints), key=Endpoint.sort_key)
        if (reason := _bind(endpoint))
    )


def _connect(endpoints: tuple[Endpoint, ...], deadline: float) -> set[Endpoint]:
    found: set[Endpoint] = set()
    pending: dict[socket.socket, Endpoint] = {}
    with selectors.DefaultSelector() as selector:
        try:
            for endpoint in endpoints:
                connection = _socket(endpoint)
                pending[connection] = endpoint
                connection.settimeout(0)
                if connection.connect_ex((str(endpoint.address), endpoint.port)) in {0, errno.EINPROGRESS}:
                    selector.register(connection, selectors.EVENT_WRITE)
            while selector.get_map() and (remaining := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(remaining):
                    connection = cast("socket.socket", key.fileobj)
                    selector.unregister(connection)
                    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                        found.add(pending[connection])
        finally:
            for connection in pending:
                connection.close()
    return found


def _bind(endpoint: Endpoint) -> int:
    with _socket(endpoint) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            attempt.bind((str(endpoint.address), endpoint.port))
        except OSError as error:
            return error.errno or errno.EIO
        return 0


def _socket(endpoint: Endpoint) -> socket.socket:
    return socket.socket(socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET)
