"""Which connections are made: to the cluster's own load balancers, at their own addresses and ports."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.doctor.paths import Answers, PathObservation, Target, works
from nodeagent.model.addresses import Endpoint, IPAddress, is_wildcard
from nodeagent.model.decisions import DecisionStatus, NameDecision
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, ProxyVersion, Service, ServicePort
from nodeagent.observe.transition_log import in_turn
from nodeagent.plan.balancers.this_node import AddressRules
from nodeagent.sources.connection_tests import Ending, Probe, ProbeOutcome, arrives_at, ask_all, ask_each

_HEADERS: tuple[ProxyVersion | None, ...] = (None, "v1", "v2")
_TLS_PORTS = frozenset({443, 6443, 8443, 9443})
_HTTP_PORTS = frozenset({80, 8000, 8080})
_MOST, _MOST_OF_ONE = 1024, 64
_ALL_SECONDS = 45.0
_IMPOSSIBLE = frozenset({"BadName", "NeverWritten"})
"""The plan's codes for hostnames that no load balancer can have."""


def find_targets(
    services: Iterable[tuple[Service, Mapping[int, ProxyVersion]]],
    hosts: Mapping[ObjectRef, str],
    resolved: Mapping[str, tuple[IPAddress, ...]],
    rules: AddressRules,
    facts: Facts,
) -> tuple[Target, ...]:
    """Return one target for each address and TCP port; the namespaces have their turns.

    Of ports that are not known to send PROXY, only those that are HTTP or TLS by name or number: other
    services are not disturbed. Never the API server's own endpoint, or what no node redirects (`rules`), such
    as clouds' metadata. `resolved` are the addresses of load balancers' names.
    """
    targets: list[Target] = []
    for service, versions in in_turn(services, lambda pair: pair[0].ref.namespace):
        most = min(len(targets) + _MOST_OF_ONE, _MOST)
        for address, vip in _addresses(service, resolved, rules):
            ips = service.cluster_ips
            cluster_ip = next((ip for ip in ips if ip.version == address.version), ips[0] if ips else None)
            for port in service.ports:
                endpoint, proxy, tls = Endpoint(address, port.port), versions.get(port.port), _tls(port)
                if (
                    port.protocol != "TCP"
                    or (proxy is None and len(tls) > 1)
                    or endpoint in facts.api_servers
                    or len(targets) == most
                ):
                    continue
                server = Endpoint(cluster_ip, port.port) if cluster_ip else None
                host = hosts.get(service.ref, "")
                targets.append(Target(service, port, endpoint, proxy, vip, host, tls, server))
    return tuple(targets)


def choose_hosts(
    desired: Desired, wanted: str, services: Iterable[Service], order: Sequence[ObjectRef] = ()
) -> dict[ObjectRef, str]:
    """Return the hostname to request from each load balancer.

    `wanted` if it serves that, or if none is known to; else one of the first object in `order` that claims
    one: a tenant's new site may answer with anything. Those that nodeagent rejects come last. Never one that
    no load balancer can have, such as the node's own: anyone can claim it.
    """
    names: dict[ObjectRef, list[NameDecision]] = {}
    for decision in desired.names:
        if decision.load_balancer is None or is_wildcard(decision.name) or decision.code in _IMPOSSIBLE:
            continue
        names.setdefault(decision.load_balancer, []).append(decision)
    place = {ref: number for number, ref in enumerate(order)}
    known = any(wanted == claim.name for claims in names.values() for claim in claims)
    hosts = {}
    for service in services:
        claims = names.get(service.ref, [])
        if wanted and (any(wanted == claim.name for claim in claims) or not known):
            hosts[service.ref] = wanted
        elif claims:
            hosts[service.ref] = min(
                (claim.status is DecisionStatus.REFUSED, place.get(claim.claimed_by, len(place)), claim.name)
                for claim in claims
            )[-1]
    return hosts


def published_names(services: Iterable[Service]) -> tuple[str, ...]:
    """Return the names by which alone load balancers are published, to be looked up."""
    points = (point for service in services for point in service.points)
    return tuple(dict.fromkeys(point.hostname for point in points if point.hostname and point.ip is None))


def _addresses(
    service: Service, resolved: Mapping[str, tuple[IPAddress, ...]], rules: AddressRules
) -> list[tuple[IPAddress, bool]]:
    addresses: dict[IPAddress, bool] = {}
    for point in service.points:
        if point.ip is not None:
            addresses.setdefault(point.ip, point.ip in service.short_circuited_ips)
        else:
            for address in resolved.get(point.hostname or "", ()):
                addresses.setdefault(address, False)
    return [(address, vip) for address, vip in addresses.items() if rules.never(address) is None]


def _tls(port: ServicePort) -> tuple[bool, ...]:
    name = port.name.lower()
    if "https" in name or "tls" in name or "ssl" in name or port.port in _TLS_PORTS:
        return (True,)
    if "http" in name or "web" in name or port.port in _HTTP_PORTS:
        return (False,)
    return (True, False)


def relays_of(desired: Desired, config: Config) -> dict[Endpoint, Endpoint]:
    """Return where nodeagent would relay each address and port here; nothing with an existing relay."""
    if config.relay.kind != "node":
        return {}
    decided = {decision.load_balancer: decision for decision in desired.load_balancers}
    return {
        Endpoint(address, listener.bind.port): listener.bind
        for listener in desired.listeners
        for address in decided[listener.load_balancer].addresses
        if address.version == listener.bind.address.version
    }


class Knowledge(Struct, frozen=True):
    """The node's relays, what DNAT sends there, the Service rules' and names' addresses; None: unreadable."""

    relays: Mapping[Endpoint, Endpoint]
    redirected: frozenset[Endpoint] | None
    in_rules: frozenset[IPAddress] | None
    led_to: Mapping[str, tuple[IPAddress, ...]]


def observe(targets: Iterable[Target], knowledge: Knowledge) -> list[PathObservation]:
    """Test load balancers that are known to send PROXY in all ways, and the others with plain connections.

    The others get a PROXY header only if a plain connection fails, to see whether the header was missing.
    """
    outcomes: dict[Probe, ProbeOutcome] = {}
    over = time.monotonic() + _ALL_SECONDS

    def endings(target: Target) -> list[ProbeOutcome]:
        return [outcomes[probe] for probe in _first_round(target, knowledge)]

    wanted = list(targets)
    outcomes |= ask_all((probe for target in wanted for probe in _first_round(target, knowledge)), over)
    # Port 443 need not be TLS.
    wanted = [
        replace(target, tls=(True, False))
        if any(outcome.ending is Ending.NOT_TLS for outcome in endings(target))
        else target
        for target in wanted
    ]
    probes = (probe for target in wanted for probe in _first_round(target, knowledge))
    outcomes |= ask_all((probe for probe in probes if probe not in outcomes), over)
    relayed = _arrivals(wanted, knowledge, over)
    doubtful = (target for target in wanted if target.proxy is None and not any(map(works, endings(target))))
    outcomes |= ask_all((one for each in doubtful for one in _matrix(each) if one not in outcomes), over)
    return [
        _observation(target, knowledge, outcomes, relayed=relayed.get(target.endpoint)) for target in wanted
    ]


def _arrivals(targets: Iterable[Target], knowledge: Knowledge, over: float) -> dict[Endpoint, bool | None]:
    """Return whether a connection arrives at the relay, for each address and port that DNAT may redirect."""
    pairs = [
        (target.endpoint, knowledge.relays[target.endpoint])
        for target in targets
        if target.endpoint in knowledge.relays
        and (knowledge.redirected is None or target.endpoint in knowledge.redirected)
    ]

    def arrived_in_time(pair: tuple[Endpoint, Endpoint]) -> bool | None:
        return arrives_at(*pair) if time.monotonic() < over else None

    return {end: arrived for (end, _), arrived in ask_each(pairs, arrived_in_time).items()}


def _first_round(target: Target, knowledge: Knowledge) -> list[Probe]:
    if target.proxy is None:
        return [Probe(target.endpoint, None, tls, target.host) for tls in target.tls]
    probes = _matrix(target)
    relay = knowledge.relays.get(target.endpoint)
    if relay is not None:
        probes += [Probe(relay, None, tls, target.host) for tls in target.tls]
    return probes


def _matrix(target: Target) -> list[Probe]:
    ends = [end for end in (target.endpoint, target.server) if end is not None]
    return [Probe(end, header, tls, target.host) for end in ends for header in _HEADERS for tls in target.tls]


def _observation(
    target: Target, knowledge: Knowledge, outcomes: Mapping[Probe, ProbeOutcome], *, relayed: bool | None
) -> PathObservation:
    def answers(end: Endpoint | None, tls: bool) -> Answers:  # noqa: FBT001 - a protocol
        if end is None:
            return Answers()
        return Answers(*(outcomes.get(Probe(end, header, tls, target.host)) for header in _HEADERS))

    def working(tls: bool) -> int:  # noqa: FBT001 - the same
        return sum(map(works, (*answers(target.endpoint, tls), *answers(target.server, tls))))

    # For a port that may be either, the protocol in which anything works is meant.
    tls = max(target.tls, key=working)
    relay = knowledge.relays.get(target.endpoint)
    # Only the cluster's own ends are connected to, so a hostname counts if it leads to the relay.
    led_to_relay = relay is not None and relay.address in knowledge.led_to.get(target.host, ())
    return PathObservation(
        target=target,
        tls=tls,
        load_balancer=answers(target.endpoint, tls),
        controller=answers(target.server, tls),
        relay=None if relay is None else (relay, outcomes.get(Probe(relay, None, tls, target.host))),
        redirected=None if knowledge.redirected is None else target.endpoint in knowledge.redirected,
        relayed=relayed,
        in_rules=None if knowledge.in_rules is None else target.endpoint.address in knowledge.in_rules,
        name=target.host if led_to_relay else "",
    )
