"""Which relay address belongs to which load balancer: the same on every node and after every restart.

A pure function of the set of load balancers, their creation times included (docs/decisions/0004): each
takes the address that the hash of its name points at, or the next free one, in the order given: the listed,
then the oldest. So one that is created later never moves another, and no node has to ask any other.
"""

import hashlib
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network

from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import Service


def allocate(services: Iterable[Service], network: IPv4Network | IPv6Network) -> dict[str, IPAddress]:
    """Maps each Service's `namespace/name` to its address; those that find the range full are missing.

    `services` are in order of precedence, each once.

    The network's own address and IPv4's broadcast address are never given out, nor is IPv6's
    subnet-router anycast address, which is the network's own (RFC 4291, 2.6.1).
    """
    spare = 2 if network.version == 4 else 1
    slots = max(network.num_addresses - spare, 0)
    taken: dict[int, str] = {}
    for service in services:
        if len(taken) >= slots:
            break
        slot = _preferred(service.ref.path, slots)
        while slot in taken:
            slot = (slot + 1) % slots
        taken[slot] = service.ref.path
    return {path: network[slot + 1] for slot, path in taken.items()}


def _preferred(path: str, slots: int) -> int:
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") % slots
