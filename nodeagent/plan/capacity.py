"""The limits of the relay, the first by precedence first, and which Service gets which relay address.

Only Services that can be served take a place: a pending, rejected or excluded one takes none. Every node and
CoreDNS must compute the same relay addresses, so nothing here depends on facts of one node.

A relay address is a pure function of the set of load balancers, their creation times included
(docs/decisions/0004): each takes the address to which the hash of its name points, or the next free one, in
the order given: the listed Services, then the oldest. So one that is created later never moves another, and
no node has to ask any other.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Verdict
from nodeagent.model.objects import ObjectRef, Service
from nodeagent.plan.address_rules import AddressRules, Publications, owner, published_addresses
from nodeagent.plan.eligibility import Refusal


class Capacity(Struct, frozen=True):
    """The relay addresses, family to Service path to address; and why Services found no place."""

    relay_addresses: Mapping[int, Mapping[str, IPAddress]]
    refusals: Mapping[ObjectRef, Refusal]


def share_out(
    services: Iterable[Service],
    published: Publications,
    rules: AddressRules,
    config: Config,
    listed: frozenset[str],
) -> Capacity:
    """Pure.

    Args:
        services: those that send PROXY, on this node or on another one, in order of precedence.
        published: what all Services publish.
        rules: only those of every node are used.
        config: the limits and the relay's ranges.
        listed: the paths of Services for which only the total limit counts: an administrator named them.
    """
    limits = config.limits
    taken: Counter[str] = Counter()
    listeners: Counter[str] = Counter()
    total = 0
    refusals: dict[ObjectRef, Refusal] = {}
    seated: list[tuple[Service, frozenset[int]]] = []
    for service in services:
        trusted = service.ref.path in listed
        addresses = published_addresses(service, listed=trusted)
        usable = [address for address in addresses if not rules.never(address)]
        ports = service.tcp_ports
        if not usable or not ports or not service.cluster_ips:
            continue  # The decision on the Service itself says why.
        if not trusted and (refusal := _by_itself(addresses, ports, config)):
            refusals[service.ref] = refusal
            continue
        if not _owns_any(service.ref, usable, ports, published):
            continue
        families = frozenset(address.version for address in usable)
        wanted = len(families) * len(ports)
        namespace = service.ref.namespace
        if not trusted and taken[namespace] >= limits.load_balancers_per_namespace:
            reason = (
                f"namespace {namespace} has {limits.load_balancers_per_namespace} older load balancers "
                "(limits.loadBalancersPerNamespace)"
            )
            refusals[service.ref] = _refusal("TooManyLoadBalancers", reason)
        elif not trusted and listeners[namespace] + wanted > limits.listeners_per_namespace:
            reason = (
                f"its {wanted} listeners would exceed the {limits.listeners_per_namespace} of namespace "
                f"{namespace} (limits.listenersPerNamespace)"
            )
            refusals[service.ref] = _refusal("TooManyListeners", reason)
        elif total + wanted > limits.listeners:
            reason = (
                f"its {wanted} listeners would exceed the {limits.listeners} of a node (limits.listeners)"
            )
            refusals[service.ref] = _refusal("TooManyListeners", reason)
        else:
            seated.append((service, families))
            total += wanted
            if not trusted:
                taken[namespace] += 1
                listeners[namespace] += wanted
    return Capacity(
        {
            4: allocate((service for service, families in seated if 4 in families), config.relay.ipv4),
            6: allocate((service for service, families in seated if 6 in families), config.relay.ipv6),
        },
        refusals,
    )


def _by_itself(addresses: tuple[IPAddress, ...], ports: tuple[int, ...], config: Config) -> Refusal | None:
    limits = config.limits
    if len(ports) > limits.ports_per_service:
        reason = (
            f"it has {len(ports)} TCP ports, more than {limits.ports_per_service} (limits.portsPerService)"
        )
        return _refusal("TooManyPorts", reason)
    if len(addresses) > limits.addresses_per_service:
        reason = (
            f"it publishes {len(addresses)} addresses, more than {limits.addresses_per_service} "
            "(limits.addressesPerService)"
        )
        return _refusal("TooManyAddresses", reason)
    return None


def _refusal(code: str, reason: str) -> Refusal:
    return Refusal(
        Verdict.REFUSED,
        code,
        f"{reason}; an administrator can list it in loadBalancers.services, or raise it",
    )


def _owns_any(
    ref: ObjectRef, addresses: Iterable[IPAddress], ports: Iterable[int], published: Publications
) -> bool:
    wanted = tuple(ports)
    return any(owner(published, Endpoint(address, port)) == ref for address in addresses for port in wanted)


def allocate(services: Iterable[Service], network: IPv4Network | IPv6Network) -> dict[str, IPAddress]:
    """Map each Service's `namespace/name` to its address; those that find the range full are missing.

    `services` are in order of precedence, each once.

    The network's own address and IPv4's broadcast address are never used. IPv6's subnet-router anycast
    address is the network's own (RFC 4291, 2.6.1).
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
