"""Listening sockets for the agent's pages: EFFECTS on the network and on the run directory."""

import os
import socket
import time
from ipaddress import IPv6Address
from pathlib import Path

from nodeagent.agent.reporting.socket_path import sockets
from nodeagent.model.addresses import Endpoint

_BACKLOG = 64
_FRESH_SECONDS = 10.0


def listen_tcp(endpoint: Endpoint) -> socket.socket:
    """A listening socket at the endpoint; `[::]` takes IPv4 too. Port 0: the kernel chooses.

    With SO_REUSEADDR, so that connections that just ended don't hinder a restart, and without SO_REUSEPORT:
    service.py says why.

    Raises:
        OSError: with EADDRINUSE, EADDRNOTAVAIL and so on, as bind gives it.
    """
    family = socket.AF_INET6 if endpoint.address.version == 6 else socket.AF_INET
    return socket.create_server(
        (str(endpoint.address), endpoint.port),
        family=family,
        backlog=_BACKLOG,
        dualstack_ipv6=endpoint.address == IPv6Address("::") and socket.has_dualstack_ipv6(),
    )


def listen_unix(path: str) -> socket.socket:
    """A listening socket at `path`, which only this user may open; its directory (0700) is made if needed.

    A socket that an earlier process with the same number left at `path` is replaced.

    Raises:
        OSError: the directory or the socket can't be made; a path of more than 107 bytes is one reason.
    """
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path(path).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
        Path(path).chmod(0o600)  # before listen: nobody could connect until now
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def remove_stale(run_dir: Path) -> None:
    """Removes the sockets of agents that are gone, of whatever container; those that answer stay. Idempotent.

    Raises:
        OSError: the directory can't be read or changed.
    """
    for path in sockets(os.fspath(run_dir), own_namespace=False):
        if _is_stale(path):
            Path(path).unlink(missing_ok=True)


def _is_stale(path: str) -> bool:
    """Whether nobody listens; one made just now may be about to."""
    try:
        if time.time() - os.lstat(path).st_mtime < _FRESH_SECONDS:
            return False
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)  # noqa: FBT003 - the library's
            connection.connect(path)
    except ConnectionRefusedError:
        return True
    except (FileNotFoundError, BlockingIOError):
        return False  # gone meanwhile; or so busy that its queue is full
    return False
