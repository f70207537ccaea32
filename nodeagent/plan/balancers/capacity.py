"""The limits of the relay, the first by precedence first, and which Service gets which relay address.

Only Services that can be served take a place. Every node and CoreDNS must compute the same relay addresses,
so nothing here depends on facts of one node.

A Service counts by its age even if it became a load balancer later. So that no namespace pushes out with
such Services what others are served with, the first load balancers of each namespace come before all others.

Each load balancer takes the relay address to which the hash of its name points, or the next free one, the
listed Services first, then the oldest (docs/decisions/0004): a later one never moves another.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from nodeagent.config.options import Config, LimitOptions
from nodeagent.model.addresses import Endpoint, IPAddress, IPNetwork
from nodeagent.model.decisions import Conclusion, refused
from nodeagent.model.objects import ObjectRef, Service
from nodeagent.plan.balancers.eligibility import Owners
from nodeagent.plan.balancers.this_node import AddressRules


class Capacity(Struct, frozen=True):
    """The relay addresses, by family and Service path; and why Services found no place."""

    relay_addresses: Mapping[int, Mapping[str, IPAddress]]
    refusals: Mapping[ObjectRef, Conclusion]


def share_out(services: Sequence[Service], owners: Owners, rules: AddressRules, config: Config) -> Capacity:
    """Give out places within the limits, and relay addresses to those that have one. Pure.

    `services` are those that send PROXY, on this node or on another one, in order of precedence. For listed
    ones, only the total limit counts. Those that are served by hostnames have their ClusterIPs' families.
    """
    candidates: list[_Candidate] = []
    for service in services:
        by_name = service.ref in owners.hostnames
        addresses = service.cluster_ips if by_name else owners.published(service)
        usable = [address for address in addresses if by_name or not rules.never(address)]
        if not (usable and service.tcp_ports and service.cluster_ips):
            continue  # The decision on the Service itself says why.
        endpoints = (Endpoint(address, port) for address in usable for port in service.tcp_ports)
        if by_name or any(owners.owner(endpoint) == service.ref for endpoint in endpoints):
            families = frozenset(address.version for address in usable)
            groups = len(families) if by_name else max(len(families), -(-len(usable) // _ADDRESSES))
            trusted = service.ref.path in owners.listed
            candidates.append(_Candidate(service, families, groups * len(service.tcp_ports), trusted))
    ranges: Mapping[int, IPNetwork] = {4: config.relay.ipv4, 6: config.relay.ipv6}
    in_turn = _in_turn(candidates, config.limits.listeners, min(map(_slots, ranges.values())))
    refusals = _give_places(in_turn, config.limits)
    relay_addresses: dict[int, Mapping[str, IPAddress]] = {}
    for family, network in ranges.items():
        wanting = [candidate.service for candidate in in_turn if family in candidate.families]
        placed = [service for service in wanting if service.ref not in refusals]
        within = {service.ref for service in placed[: _slots(network)]}
        in_order = (candidate.service for candidate in candidates if candidate.service.ref in within)
        relay_addresses[family] = allocate(in_order, network)
    return Capacity(relay_addresses, refusals)


_ADDRESSES = 8
"""So many addresses count as one listener on each port, as their redirects cost memory and time, too."""


class _Candidate(Struct, frozen=True):
    """A Service that wants a place; `trusted` if it is listed."""

    service: Service
    families: frozenset[int]
    listeners: int
    trusted: bool


_GUARANTEED_PART = 20
"""Of listeners and relay addresses, what each namespace gets before all others: 50 and 12 by default."""


def _in_turn(candidates: Iterable[_Candidate], listeners: int, addresses: int) -> Sequence[_Candidate]:
    """Return first those that are listed, or among the first of their namespaces; in order of precedence."""
    wanted: Counter[str] = Counter()
    number: Counter[str] = Counter()
    first: list[_Candidate] = []
    others: list[_Candidate] = []
    for candidate in candidates:
        namespace = candidate.service.ref.namespace
        wanted[namespace] += 0 if candidate.trusted else candidate.listeners
        number[namespace] += 0 if candidate.trusted else 1
        guaranteed = wanted[namespace] <= listeners // _GUARANTEED_PART
        guaranteed &= number[namespace] <= max(addresses // _GUARANTEED_PART, 1)
        (first if candidate.trusted or guaranteed else others).append(candidate)
    return (*first, *others)


def _give_places(in_turn: Iterable[_Candidate], limits: LimitOptions) -> Mapping[ObjectRef, Conclusion]:
    refusals: dict[ObjectRef, Conclusion] = {}
    total = 0
    load_balancers: Counter[str] = Counter()
    listeners: Counter[str] = Counter()
    for candidate in in_turn:
        namespace, most = candidate.service.ref.namespace, limits.load_balancers_per_namespace
        too_many = ""
        if total + candidate.listeners > limits.listeners:
            too_many = f"the {limits.listeners} of a node (limits.listeners)"
        if (
            not candidate.trusted
            and listeners[namespace] + candidate.listeners > limits.listeners_per_namespace
        ):
            share = limits.listeners_per_namespace
            too_many = f"the {share} of namespace {namespace} (limits.listenersPerNamespace)"
        if not candidate.trusted and load_balancers[namespace] >= most:
            older = f"namespace {namespace} has {most} older load balancers"
            reason = f"{older} (limits.loadBalancersPerNamespace)"
            refusals[candidate.service.ref] = _refused("TooManyLoadBalancers", reason)
        elif too_many:
            reason = f"its {candidate.listeners} listeners would exceed {too_many}"
            refusals[candidate.service.ref] = _refused("TooManyListeners", reason)
        else:
            total += candidate.listeners
            load_balancers[namespace] += not candidate.trusted
            listeners[namespace] += 0 if candidate.trusted else candidate.listeners
    return refusals


_MOST_ENDPOINTS = 2048
"""Addresses times ports of a Service: as many redirects."""


def too_large(service: Service, limits: LimitOptions) -> Conclusion | None:
    """Why a Service that is not listed is not looked into, whatever it publishes; None if it is."""
    ports, addresses = len(service.tcp_ports), len(service.load_balancer_ips)
    if not addresses:
        return None
    if ports > limits.ports_per_service:
        reason = f"it has {ports} TCP ports, more than {limits.ports_per_service} (limits.portsPerService)"
        return _refused("TooManyPorts", reason)
    if addresses > limits.addresses_per_service:
        most = f"more than {limits.addresses_per_service} (limits.addressesPerService)"
        return _refused("TooManyAddresses", f"it publishes {addresses} addresses, {most}")
    if addresses * ports > _MOST_ENDPOINTS:
        pairs = f"{addresses} addresses with {ports} TCP ports, more than {_MOST_ENDPOINTS} pairs"
        reason = f"it publishes {pairs}; an administrator can list it in loadBalancers.services"
        return refused("TooManyAddresses", reason)
    return None


def _refused(code: str, reason: str) -> Conclusion:
    return refused(
        code, f"{reason}; an administrator can list it in loadBalancers.services, or raise the limit"
    )


def _slots(network: IPNetwork) -> int:
    return max(network.num_addresses - (2 if network.version == 4 else 1), 0)


def allocate(services: Iterable[Service], network: IPNetwork) -> dict[str, IPAddress]:
    """Map each Service's `namespace/name` to its address; those that find the range full are missing.

    `services` are in order of precedence, each once. The network's own address (IPv6's subnet-router anycast
    address, RFC 4291, 2.6.1) and IPv4's broadcast address are never used.
    """
    slots = _slots(network)
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
