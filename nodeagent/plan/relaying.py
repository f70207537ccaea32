"""How one load balancer is relayed on this node: relay addresses, listeners, redirects."""

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

from nodeagent.config.options import RelayOptions
from nodeagent.model.addresses import Endpoint, IPAddress, sort_key
from nodeagent.model.desired import Listener, Redirect, RelayAddress, Verdict
from nodeagent.model.facts import Facts, port_holder
from nodeagent.model.objects import ObjectRef, ProxyVersion, Service
from nodeagent.plan.address_rules import Publications, obstacle
from nodeagent.plan.eligibility import Eligible, Refusal, supported_part
from nodeagent.plan.node_ports import NODE_PORTS


class RelayContext(Struct, frozen=True):
    """What a decision about one load balancer looks up in the results for all.

    `relay_addresses` maps family to Service path to address; `published` says to which Service an address and
    port belong; `allowed_ports` are relayed although nodes' daemons commonly have them; `source_addresses`
    are this node's own, by family; `unsupported` are the families that this node does not support, each with
    the reason.
    """

    relay_addresses: Mapping[int, Mapping[str, IPAddress]]
    published: Publications
    allowed_ports: frozenset[int]
    source_addresses: Mapping[int, IPAddress]
    unsupported: Mapping[int, str]
    facts: Facts
    options: RelayOptions


class Relayed(Struct, frozen=True):
    """What one load balancer needs on the node.

    `shown_at` is where it is relayed, for a person. Its hostnames get hosts lines with `hosts_addresses`:
    empty if not all of its ports are relayed, since a hostname covers every port. `taken` are the notes about
    ports that another program of this node holds.
    """

    relay_addresses: tuple[RelayAddress, ...]
    listeners: tuple[Listener, ...]
    redirects: tuple[Redirect, ...]
    remarks: tuple[str, ...]
    shown_at: tuple[IPAddress, ...]
    hosts_addresses: tuple[IPAddress, ...]
    taken: tuple[str, ...] = ()


def relay(
    service: Service, versions: Mapping[int, ProxyVersion], eligible: Eligible, context: RelayContext
) -> Relayed | Refusal:
    """Return the relay for what is eligible; a port with an obstacle is left out with a note. Pure.

    `versions` says what is sent on which port. A port without PROXY is not redirected: kube-proxy's
    short-circuited path serves it. But a hostname covers every port. So if hostnames may point at the relay,
    such a port has a listener there that passes connections on as they are. An address of a family that the
    node does not support is left out, too, and is not missed: the node's clients have no use for it.
    """
    spoken = supported_part(eligible, context.unsupported)
    if isinstance(spoken, Refusal):
        return spoken
    eligible = spoken
    relays: dict[int, IPAddress | Refusal] = {
        family: _relay_address(service.ref, family, context)
        for family in sorted({address.version for address in eligible.addresses})
    }
    unavailable = [found for found in relays.values() if isinstance(found, Refusal)]
    addresses = {family: found for family, found in relays.items() if not isinstance(found, Refusal)}
    taken = tuple(
        text
        for match in (*eligible.endpoints, *eligible.plain_endpoints)
        if (text := _taken(match, addresses, context))
    )
    obstacles = {match: _obstacle(match, service.ref, addresses, context) for match in eligible.endpoints}
    plain_obstacles = [
        text
        for match in eligible.plain_endpoints
        if (text := _obstacle(match, service.ref, addresses, context))
    ]
    remarks = (
        *eligible.remarks,
        *(text for text in obstacles.values() if text),
        *plain_obstacles,
        *(f"port {port}: without PROXY: not redirected" for port in eligible.plain_ports),
    )
    if unavailable and not all(obstacles.values()):
        return replace(unavailable[0], remarks=remarks)
    redirects = tuple(
        Redirect(match, Endpoint(addresses[match.address.version], match.port), service.ref)
        for match in sorted(obstacles, key=Endpoint.sort_key)
        if obstacles[match] is None
    )
    if not redirects and taken:
        return Refusal(Verdict.REFUSED, "PortTaken", "; ".join(taken), remarks, taken)
    if not redirects:
        return Refusal(
            Verdict.REFUSED, "NothingLeft", "none of its ports can be relayed: see the notes", remarks
        )
    binds = {redirect.to for redirect in redirects}
    used = tuple(sorted({bind.address for bind in binds}, key=sort_key))
    whole = len(redirects) == len(obstacles) and not plain_obstacles
    if whole:
        binds |= {Endpoint(address, port) for address in used for port in eligible.plain_ports}
    return Relayed(
        relay_addresses=tuple(RelayAddress(address, service.ref) for address in used),
        listeners=tuple(
            _listener(bind, service, versions.get(bind.port), context)
            for bind in sorted(binds, key=Endpoint.sort_key)
        ),
        redirects=redirects,
        remarks=remarks,
        shown_at=used,
        hosts_addresses=used if whole else (),
        taken=taken,
    )


def _relay_address(ref: ObjectRef, family: int, context: RelayContext) -> IPAddress | Refusal:
    network = context.options.ipv4 if family == 4 else context.options.ipv6
    address = context.relay_addresses[family].get(ref.path)
    if address is None:
        return Refusal(
            Verdict.REFUSED,
            "RangeExhausted",
            f"no relay address is left in {network}: widen relay.ipv{family}, the same on every node",
        )
    for standing in context.facts.addresses:
        if standing.address == address and not standing.ours:
            return Refusal(
                Verdict.REFUSED,
                "AddressInUse",
                f"its relay address {address} is already used on {standing.interface} by another program: "
                f"remove it there, or choose another relay.ipv{family}, the same on every node",
            )
    return address


def _obstacle(
    match: Endpoint, ref: ObjectRef, relays: Mapping[int, IPAddress], context: RelayContext
) -> str | None:
    found = obstacle(match, ref, context.published, context.facts)
    if found is None and match.port in NODE_PORTS and match.port not in context.allowed_ports:
        return (
            f"{match}: not relayed: port {match.port} is for the node's own {NODE_PORTS[match.port]}; give "
            "the Service another port, or list this one in loadBalancers.allowPorts"
        )
    return _taken(match, relays, context) if found is None else found


def _taken(match: Endpoint, relays: Mapping[int, IPAddress], context: RelayContext) -> str | None:
    """Why the relay can't listen for it: another program has the port, on every address or on the relay's."""
    relay = relays.get(match.address.version)
    bind = None if relay is None else Endpoint(relay, match.port)
    uid = None if bind is None else port_holder(context.facts.port_holders, bind)
    if uid is None:
        return None
    where = f"{bind}" if bind in context.facts.port_holders else f"every IPv{match.address.version} address"
    return (
        f"{match}: not relayed: a process of user {uid} on this node holds port {match.port} of {where}, "
        "so the relay can't"
    )


def _listener(
    bind: Endpoint, service: Service, version: ProxyVersion | None, context: RelayContext
) -> Listener:
    """Send to the ClusterIP of the bind's family; to the other one where the Service has only that."""
    family = bind.address.version
    same_family = [address for address in service.cluster_ips if address.version == family]
    server = Endpoint((same_family or service.cluster_ips)[0], bind.port)
    # Without the header, the source is not passed on.
    node_address = context.source_addresses.get(family) if version else None
    return Listener(bind, server, version, service.ref, node_address)
