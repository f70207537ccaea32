"""Keeps the connections of all of a HAProxy's processes together within its limit. EFFECTS.

HAProxy's limits count in each process alone, and a reload leaves the one before with its connections. The
master's socket reaches each of them (management manual 9.4).
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from nodeagent.components.relay.haproxy_sockets import Unreachable, ask
from nodeagent.linux.netlink import end_tcp, tcp_sockets
from nodeagent.model.addresses import IPNetwork

_ASK_SECONDS = 5.0
_COUNT = re.compile(r"^CurrConns: (\d{1,9})$", re.MULTILINE)
# include/net/tcp_states.h: established, or closed by one side.
_OPEN = (1, 4, 5, 8)


def trim(
    master_socket: Path, pids: Iterable[int], ranges: Iterable[IPNetwork], most: int, uid: int | None
) -> None:
    """Close connections, so that these processes together have at most `most`.

    The clients that have the most lose theirs, so what one holds costs no other a connection. By the kernel:
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
    infos = (ask(master_socket, f"@!{pid} show info", _ASK_SECONDS) for pid in pids)
    counts = (_COUNT.search(info) for info in infos if not isinstance(info, Unreachable))
    if sum(int(count[1]) for count in counts if count) <= most:
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
