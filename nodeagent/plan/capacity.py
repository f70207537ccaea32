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
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from nodeagent.config.options import Config, LimitOptions
from nodeagent.model.addresses import Endpoint, IPAddress, IPNetwork
from nodeagent.model.desired import Ruling, refused
from nodeagent.model.objects import ObjectRef, Service
from nodeagent.plan.address_rules import AddressRules, Publications, own_hostnames, owner, published_addresses
from nodeagent.plan.precedence import listed_paths


class Capacity(Struct, frozen=True):
    """The relay addresses, family to Service path to address; and why Services found no place."""

    relay_addresses: Mapping[int, Mapping[str, IPAddress]]
    refusals: Mapping[ObjectRef, Ruling]


def share_out(
    services: Sequence[Service], published: Publications, rules: AddressRules, config: Config
) -> Capacity:
    """Give out places within the limits, and relay addresses to those that have one. Pure.

    Args:
        services: those that send PROXY, on this node or on another one, in order of precedence.
        published: what all Services publish.
        rules: only those of every node are used.
        config: the limits, the relay's ranges, and the listed Services: only the total limit counts for them.
            Those that are served by their hostnames have the families of their ClusterIPs.
    """
    listed, named = listed_paths(config), own_hostnames(services, config)
    places = _Places(config.limits)
    refusals: dict[ObjectRef, Ruling] = {}
    for service in services:
        trusted = service.ref.path in listed
        by_name = service.ref in named
        addresses = service.cluster_ips if by_name else published_addresses(service, listed=trusted)
        usable = [address for address in addresses if by_name or not rules.never(address)]
        if not (usable and service.tcp_ports and service.cluster_ips):
            continue  # The decision on the Service itself says why.
        ruling = None if trusted else _too_large(service, len(addresses), config.limits)
        ends = (Endpoint(address, port) for address in usable for port in service.tcp_ports)
        if ruling is None and (by_name or any(owner(published, end) == service.ref for end in ends)):
            ruling = places.give(service, frozenset(each.version for each in usable), trusted=trusted)
        if ruling is not None:
            refusals[service.ref] = ruling
    ranges: Mapping[int, IPNetwork] = {4: config.relay.ipv4, 6: config.relay.ipv6}
    return Capacity(
        {
            family: allocate((one for one, families in places.given if family in families), network)
            for family, network in ranges.items()
        },
        refusals,
    )


class _Places:
    """The places, given to one Service after the other; `given` are those that have one."""

    def __init__(self, limits: LimitOptions) -> None:
        self._limits = limits
        self._load_balancers: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._total = 0
        self.given: list[tuple[Service, frozenset[int]]] = []

    def give(self, service: Service, families: frozenset[int], *, trusted: bool) -> Ruling | None:
        """Give the Service a place; return why it gets none, if so."""
        wanted = len(families) * len(service.tcp_ports)
        namespace = service.ref.namespace
        ruling = None if trusted else self._beyond_share(namespace, wanted)
        if ruling is None and self._total + wanted > self._limits.listeners:
            most = f"the {self._limits.listeners} of a node (limits.listeners)"
            ruling = _refused("TooManyListeners", f"its {wanted} listeners would exceed {most}")
        if ruling is None:
            self.given.append((service, families))
            self._total += wanted
            self._load_balancers[namespace] += not trusted
            self._listeners[namespace] += 0 if trusted else wanted
        return ruling

    def _beyond_share(self, namespace: str, wanted: int) -> Ruling | None:
        most = self._limits.load_balancers_per_namespace
        if self._load_balancers[namespace] >= most:
            reason = (
                f"namespace {namespace} has {most} older load balancers (limits.loadBalancersPerNamespace)"
            )
            return _refused("TooManyLoadBalancers", reason)
        most = self._limits.listeners_per_namespace
        if self._listeners[namespace] + wanted > most:
            of = f"the {most} of namespace {namespace} (limits.listenersPerNamespace)"
            return _refused("TooManyListeners", f"its {wanted} listeners would exceed {of}")
        return None


def _too_large(service: Service, addresses: int, limits: LimitOptions) -> Ruling | None:
    ports = len(service.tcp_ports)
    if ports > limits.ports_per_service:
        reason = f"it has {ports} TCP ports, more than {limits.ports_per_service} (limits.portsPerService)"
        return _refused("TooManyPorts", reason)
    if addresses > limits.addresses_per_service:
        most = f"more than {limits.addresses_per_service} (limits.addressesPerService)"
        return _refused("TooManyAddresses", f"it publishes {addresses} addresses, {most}")
    return None


def _refused(code: str, reason: str) -> Ruling:
    return refused(code, f"{reason}; an administrator can list it in loadBalancers.services, or raise it")


def allocate(services: Iterable[Service], network: IPNetwork) -> dict[str, IPAddress]:
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
        digest = hashlib.sha256(service.ref.path.encode()).digest()
        slot = int.from_bytes(digest[:8], "big") % slots
        while slot in taken:
            slot = (slot + 1) % slots
        taken[slot] = service.ref.path
    return {path: network[slot + 1] for slot, path in taken.items()}
