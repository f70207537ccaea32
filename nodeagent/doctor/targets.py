"""Which connections are made: to the cluster's own load balancers, at their own addresses and ports. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, ProxyVersion, Service, ServicePort
from nodeagent.plan.hostnames import is_wildcard

_TLS_PORTS = frozenset({443, 6443, 8443, 9443})
_HTTP_PORTS = frozenset({80, 8000, 8080})


@dataclass(frozen=True, slots=True)
class Target:
    """One address and port of a load balancer, and how to ask it.

    Attributes:
        service: whose it is.
        port: the Service's port.
        endpoint: address and port.
        proxy: the version that the load balancer is known to send.
        vip: whether kube-proxy short-circuits the address by its object's word.
        host: the name to ask for; empty where none is known.
        tls: with TLS, without, or both where neither name nor number of the port tells.
        server: the ClusterIP's.
    """

    service: Service
    port: ServicePort
    endpoint: Endpoint
    proxy: ProxyVersion | None
    vip: bool
    host: str
    tls: tuple[bool, ...]
    server: Endpoint | None


def find_targets(
    services: Iterable[tuple[Service, Mapping[int, ProxyVersion]]],
    hosts: Mapping[ObjectRef, str],
    resolved: Mapping[str, tuple[IPAddress, ...]],
    facts: Facts,
) -> tuple[Target, ...]:
    """What to connect to.

    Args:
        services: the load balancers to look at, with the version of the PROXY line that each port is known
            to send.
        hosts: the name to ask each for.
        resolved: the addresses of the names by which load balancers are published.
        facts: the API server's own endpoint is never asked.

    Returns:
        One target for each address and TCP port. Of a load balancer that is not known to send PROXY, those
        ports alone that are HTTP or TLS by name or number: what else listens there is not disturbed.
    """
    return tuple(
        target
        for service, versions in services
        for address, vip in _addresses(service, resolved)
        for port in service.ports
        if (target := _target(service, address, vip, port, versions.get(port.port), hosts)) is not None
        and target.endpoint not in facts.api_servers
    )


def choose_hosts(desired: Desired, wanted: str, services: Iterable[Service]) -> dict[ObjectRef, str]:
    """The name to ask each load balancer for: `wanted` where it serves that, else the first name it serves.

    A `wanted` name that no load balancer is known to serve is asked of all of them.
    """
    names: dict[ObjectRef, list[str]] = {}
    for decision in desired.names:
        if decision.load_balancer is not None and not is_wildcard(decision.name):
            names.setdefault(decision.load_balancer, []).append(decision.name)
    known = any(wanted in found for found in names.values())
    chosen = {}
    for service in services:
        found = sorted(names.get(service.ref, ()))
        if wanted and (wanted in found or not known):
            chosen[service.ref] = wanted
        elif found:
            chosen[service.ref] = found[0]
    return chosen


def published_names(services: Iterable[Service]) -> tuple[str, ...]:
    """The names of load balancers that are published by name alone, to be looked up."""
    return tuple(
        dict.fromkeys(
            point.hostname
            for service in services
            for point in service.points
            if point.ip is None and point.hostname
        )
    )


def _addresses(
    service: Service, resolved: Mapping[str, tuple[IPAddress, ...]]
) -> list[tuple[IPAddress, bool]]:
    found: dict[IPAddress, bool] = {}
    for point in service.points:
        if point.ip is not None:
            found.setdefault(point.ip, point.ip_mode != "Proxy")
        else:
            for address in resolved.get(point.hostname or "", ()):
                found.setdefault(address, False)
    return [(address, vip) for address, vip in found.items() if not _impossible(address)]


def _impossible(address: IPAddress) -> bool:
    return address.is_loopback or address.is_multicast or address.is_unspecified or address.is_link_local


def _target(  # noqa: PLR0913, PLR0917 - what a target is made of
    service: Service,
    address: IPAddress,
    vip: bool,  # noqa: FBT001 - goes into the field of that name
    port: ServicePort,
    proxy: ProxyVersion | None,
    hosts: Mapping[ObjectRef, str],
) -> Target | None:
    tls = _tls(port)
    if port.protocol != "TCP" or (proxy is None and len(tls) > 1):
        return None
    servers = [one for one in service.cluster_ips if one.version == address.version] or service.cluster_ips
    server = Endpoint(servers[0], port.port) if servers else None
    endpoint = Endpoint(address, port.port)
    return Target(service, port, endpoint, proxy, vip, hosts.get(service.ref, ""), tls, server)


def _tls(port: ServicePort) -> tuple[bool, ...]:
    name = port.name.lower()
    if "https" in name or "tls" in name or "ssl" in name or port.port in _TLS_PORTS:
        return (True,)
    if "http" in name or "web" in name or port.port in _HTTP_PORTS:
        return (False,)
    return (True, False)


def relays_of(desired: Desired, config: Config) -> dict[Endpoint, Endpoint]:
    """Where nodeagent would relay each address and port on this node; nothing with an existing relay."""
    if config.relay.kind != "node":
        return {}
    decided = {decision.load_balancer: decision for decision in desired.load_balancers}
    return {
        Endpoint(address, listener.bind.port): listener.bind
        for listener in desired.listeners
        for address in decided[listener.load_balancer].addresses
        if address.version == listener.bind.address.version
    }
