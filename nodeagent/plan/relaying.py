"""How one load balancer is relayed: by this node's own relay, or by an existing relay Service."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress, sort_key
from nodeagent.model.desired import Listener, Redirect, RelayAddress, Verdict
from nodeagent.model.facts import Facts, port_holder
from nodeagent.model.objects import ObjectRef, ProxyVersion, RelayEndpoint, RelayService, Service, Snapshot
from nodeagent.plan.address_rules import Publications, obstacle
from nodeagent.plan.capacity import Capacity
from nodeagent.plan.eligibility import Eligible, Refusal, supported_part, unsupported_families
from nodeagent.plan.node_ports import NODE_PORTS


class Relayed(Struct, frozen=True):
    """What one load balancer needs on the node: nothing if it is not relayed.

    `shown_at` is where it is relayed, for a person. Its hostnames get hosts lines with `hosts_addresses`:
    empty if not all of its ports are relayed, since a hostname covers every port. `taken` are the notes about
    ports that another program of this node holds.
    """

    relay_addresses: tuple[RelayAddress, ...] = ()
    listeners: tuple[Listener, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    remarks: tuple[str, ...] = ()
    shown_at: tuple[IPAddress, ...] = ()
    hosts_addresses: tuple[IPAddress, ...] = ()
    taken: tuple[str, ...] = ()


class OwnRelay:
    """This node's relay: `relay.kind: node`. Pure: it depends on what it is made of alone.

    Args:
        snapshot: the cluster.
        facts: this node.
        config: the configuration.
        published: to which Service an address and port belong.
        capacity: who has which relay address, and who found no place.
    """

    def __init__(
        self, snapshot: Snapshot, facts: Facts, config: Config, published: Publications, capacity: Capacity
    ) -> None:
        self._published = published
        self._capacity = capacity
        self._allowed_ports = frozenset(config.load_balancers.allow_ports)
        self._source_addresses = _source_addresses(snapshot, facts)
        self._unsupported = unsupported_families(snapshot, facts)
        self._facts = facts
        self._ranges = {4: config.relay.ipv4, 6: config.relay.ipv6}

    def relayed(
        self, service: Service, versions: Mapping[int, ProxyVersion], eligible: Eligible
    ) -> Relayed | Refusal:
        """Return the relay for what is eligible; a port with an obstacle is left out with a note.

        `versions` says what is sent on which port. A port without PROXY is not redirected: kube-proxy's
        short-circuited path serves it. But a hostname covers every port. So if hostnames may point at the
        relay, such a port has a listener there that passes connections on as they are. An address of a
        family that the node does not support is left out, too, and is not missed: the node's clients have
        no use for it.
        """
        refusal = self._capacity.refusals.get(service.ref)
        if refusal is not None:
            return replace(refusal, remarks=eligible.remarks)
        supported = supported_part(eligible, self._unsupported)
        if isinstance(supported, Refusal):
            return supported
        eligible = supported
        relays: dict[int, IPAddress | Refusal] = {
            family: self._relay_address(service.ref, family)
            for family in sorted({address.version for address in eligible.addresses})
        }
        unavailable = [found for found in relays.values() if isinstance(found, Refusal)]
        addresses = {family: found for family, found in relays.items() if not isinstance(found, Refusal)}
        taken = tuple(
            text
            for match in (*eligible.endpoints, *eligible.plain_endpoints)
            if (text := self._taken(match, addresses))
        )
        obstacles = {match: self._obstacle(match, service.ref, addresses) for match in eligible.endpoints}
        plain_obstacles = [
            text
            for match in eligible.plain_endpoints
            if (text := self._obstacle(match, service.ref, addresses))
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
                self._listener(bind, service, versions.get(bind.port))
                for bind in sorted(binds, key=Endpoint.sort_key)
            ),
            redirects=redirects,
            remarks=remarks,
            shown_at=used,
            hosts_addresses=used if whole else (),
            taken=taken,
        )

    def _relay_address(self, ref: ObjectRef, family: int) -> IPAddress | Refusal:
        address = self._capacity.relay_addresses[family].get(ref.path)
        if address is None:
            return Refusal(
                Verdict.REFUSED,
                "RangeExhausted",
                f"no relay address is left in {self._ranges[family]}: widen relay.ipv{family}, the same on "
                "every node",
            )
        for standing in self._facts.addresses:
            if standing.address == address and not standing.ours:
                return Refusal(
                    Verdict.REFUSED,
                    "AddressInUse",
                    f"its relay address {address} is already used on {standing.interface} by another "
                    f"program: remove it there, or choose another relay.ipv{family}, the same on every node",
                )
        return address

    def _obstacle(self, match: Endpoint, ref: ObjectRef, relays: Mapping[int, IPAddress]) -> str | None:
        found = obstacle(match, ref, self._published, self._facts)
        if found is None and match.port in NODE_PORTS and match.port not in self._allowed_ports:
            return (
                f"{match}: not relayed: port {match.port} is for the node's own {NODE_PORTS[match.port]}; "
                "give the Service another port, or list this one in loadBalancers.allowPorts"
            )
        return self._taken(match, relays) if found is None else found

    def _taken(self, match: Endpoint, relays: Mapping[int, IPAddress]) -> str | None:
        """Why the relay can't listen for it: another program has the port, everywhere or at the relay's."""
        relay = relays.get(match.address.version)
        bind = None if relay is None else Endpoint(relay, match.port)
        uid = None if bind is None else port_holder(self._facts.port_holders, bind)
        if uid is None:
            return None
        where = f"{bind}" if bind in self._facts.port_holders else f"every IPv{match.address.version} address"
        return (
            f"{match}: not relayed: a process of user {uid} on this node holds port {match.port} of {where}, "
            "so the relay can't"
        )

    def _listener(self, bind: Endpoint, service: Service, version: ProxyVersion | None) -> Listener:
        """Send to the ClusterIP of the bind's family; to the other one where the Service has only that."""
        family = bind.address.version
        same_family = [address for address in service.cluster_ips if address.version == family]
        server = Endpoint((same_family or service.cluster_ips)[0], bind.port)
        # Without the header, the source is not passed on.
        node_address = self._source_addresses.get(family) if version else None
        return Listener(bind, server, version, service.ref, node_address)


def _source_addresses(snapshot: Snapshot, facts: Facts) -> dict[int, IPAddress]:
    """Return this node's address per family: its Node object's first, else that of outgoing connections."""
    reported: Iterable[IPAddress] = snapshot.node.addresses if snapshot.node else ()
    found: dict[int, IPAddress] = {}
    for address in (*reported, *facts.source_addresses):
        found.setdefault(address.version, address)
    return found


class ExistingRelay:
    """An existing relay Service: `relay.kind: service`.

    It sends to one ingress controller, so it serves one load balancer: the first by precedence that can be
    relayed. Hosts lines point at the Service's ClusterIP. DNAT can't: the chain that translates first wins,
    and kube-proxy's no longer runs for that connection; so DNAT points at a ready pod of the Service.
    Pure: it depends on what it is made of alone.

    Args:
        snapshot: the cluster.
        facts: this node.
        config: the configuration.
        published: to which Service an address and port belong.
        examined: the load balancers that send PROXY, in order of precedence.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        facts: Facts,
        config: Config,
        published: Publications,
        examined: Mapping[ObjectRef, Eligible | Refusal],
    ) -> None:
        self._path = config.relay.service.path
        self._service = snapshot.relay_service
        self._endpoints = snapshot.relay_endpoints
        self._published = published
        self._facts = facts
        self._relayed = {
            ref: self._relay(ref, eligible)
            for ref, eligible in examined.items()
            if isinstance(eligible, Eligible)
        }
        self._holder = next((ref for ref, found in self._relayed.items() if isinstance(found, Relayed)), None)

    def relayed(
        self, service: Service, _: Mapping[int, ProxyVersion], eligible: Eligible
    ) -> Relayed | Refusal:
        """Return what this node has for the load balancer, or why it has nothing."""
        found = self._relayed[service.ref]
        if isinstance(found, Refusal) or self._holder == service.ref:
            return found
        reason = (
            f"the relay Service {self._path} serves one load balancer, and that is {self._holder}, "
            "which is listed or older: loadBalancers.services chooses; relay.kind: node serves all of them"
        )
        return Refusal(Verdict.SKIPPED, "RelayTaken", reason, eligible.remarks)

    def _relay(self, ref: ObjectRef, eligible: Eligible) -> Relayed | Refusal:
        """Return the redirects for what is eligible, and the addresses for its hostnames."""
        relay = self._service
        if relay is None or not relay.cluster_ips:
            reason = f"the relay Service {self._path} is missing or has no ClusterIP (relay.service)"
            return Refusal(Verdict.REFUSED, "NoRelayService", reason, eligible.remarks)
        plain = [
            f"port {port}: without PROXY, which {relay.ref} adds on every port: hostnames are left to DNAT"
            for port in eligible.plain_ports
        ]
        obstacles = {
            match: obstacle(match, ref, self._published, self._facts) for match in eligible.endpoints
        }
        chosen = {match: self._target(match, relay) for match, why in obstacles.items() if why is None}
        if not chosen:
            return Refusal(
                Verdict.REFUSED,
                "NothingLeft",
                "none of its ports can be relayed: see the notes",
                eligible.remarks,
            )
        return Relayed(
            redirects=tuple(
                Redirect(match, target, ref)
                for match, target in sorted(chosen.items(), key=lambda item: item[0].sort_key())
                if isinstance(target, Endpoint)
            ),
            remarks=(
                *eligible.remarks,
                *plain,
                *(why for why in obstacles.values() if why),
                *dict.fromkeys(target for target in chosen.values() if isinstance(target, str)),
            ),
            shown_at=_cluster_ips(relay, eligible.addresses),
            hosts_addresses=() if plain else _cluster_ips(relay, eligible.addresses),
        )

    def _target(self, match: Endpoint, relay: RelayService) -> Endpoint | str:
        """Return the pod that serves the port, or why there is none."""
        port = next(
            (port for port in relay.ports if port.port == match.port and port.protocol == "TCP"), None
        )
        if port is None:
            return f"port {match.port}: not redirected: {relay.ref} has no such port"
        family = match.address.version
        ready = [
            endpoint
            for endpoint in self._endpoints
            if endpoint.ready and endpoint.port_name == port.name and endpoint.address.version == family
        ]
        if not ready:
            return f"port {match.port}: not redirected: no IPv{family} endpoint of {relay.ref} is ready"
        best = max(ready, key=lambda endpoint: _preference(endpoint, self._facts.node_name))
        return Endpoint(best.address, best.port)


def _preference(endpoint: RelayEndpoint, node_name: str) -> tuple[bool, bytes]:
    """Return a sort key: this node's own pod first, then rendezvous hashing, so one pod's end moves few."""
    weight = hashlib.sha256(f"{node_name} {endpoint.address}".encode()).digest()
    return (endpoint.node_name == node_name, weight)


def _cluster_ips(relay: RelayService, addresses: Iterable[IPAddress]) -> tuple[IPAddress, ...]:
    families = {address.version for address in addresses}
    same = tuple(address for address in relay.cluster_ips if address.version in families)
    return same or relay.cluster_ips
