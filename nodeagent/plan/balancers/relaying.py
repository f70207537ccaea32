"""How one load balancer is relayed by this node's own relay (another one: existing_relay.py)."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress, sort_key
from nodeagent.model.decisions import Conclusion, refused
from nodeagent.model.desired import Listener, Redirect
from nodeagent.model.facts import Facts, port_holder
from nodeagent.model.objects import ObjectRef, ProxyVersion, Service, Snapshot
from nodeagent.plan.balancers.capacity import Capacity
from nodeagent.plan.balancers.eligibility import Eligible, Owners, Unserved, supported_part
from nodeagent.plan.balancers.this_node import NODE_PORTS, in_use, unsupported_families

NOTHING_LEFT = refused("NothingLeft", "none of its ports can be relayed: see nodeagent status")


class RelayPlan(Struct, frozen=True):
    """What this node does for one load balancer.

    Attributes:
        shown_at: where the relay is, for a person.
        hosts_addresses: what hosts lines for its hostnames point at; empty if not all its ports are relayed.
        taken: the remarks about ports that another program of this node holds.
    """

    listeners: tuple[Listener, ...]
    redirects: tuple[Redirect, ...]
    shown_at: tuple[IPAddress, ...]
    hosts_addresses: tuple[IPAddress, ...]
    remarks: tuple[str, ...]
    taken: tuple[str, ...] = ()


class OwnRelay:
    """This node's relay: `relay.kind: node`. Pure: it depends on what it is made of alone."""

    def __init__(
        self, snapshot: Snapshot, facts: Facts, config: Config, owners: Owners, capacity: Capacity
    ) -> None:
        self._owners = owners
        self._capacity = capacity
        self._config = config
        # This node's address per family: its Node object's first, else that of outgoing connections.
        self._source_addresses: dict[int, IPAddress] = {}
        for address in (*(snapshot.node.addresses if snapshot.node else ()), *facts.source_addresses):
            self._source_addresses.setdefault(address.version, address)
        self._unsupported = unsupported_families(snapshot, facts)
        self._facts = facts
        ranges = (config.relay.ipv4, config.relay.ipv6)
        self._in_use: dict[int, str] = {
            network.version: in_use(network, snapshot, facts, config) for network in ranges
        }

    def plan(
        self, service: Service, versions: Mapping[int, ProxyVersion], eligible: Eligible
    ) -> RelayPlan | Unserved:
        """Return the relay for what is eligible; a port with an obstacle is left out with a note.

        A port without PROXY is not redirected: kube-proxy serves it. If hostnames, which carry every port,
        may point at the relay, it has a listener there. An address of an unsupported family is not missed.
        """
        if conclusion := self._capacity.refusals.get(service.ref):
            return Unserved(conclusion, eligible.remarks)
        supported = supported_part(eligible, self._unsupported)
        if isinstance(supported, Unserved):
            return supported
        families: list[int] = sorted({address.version for address in supported.addresses})
        places = {family: self._relay_address(service.ref, family) for family in families}
        relays = {family: place for family, place in places.items() if not isinstance(place, Conclusion)}
        plain = [Endpoint(address, port) for address in supported.addresses for port in supported.plain_ports]
        held = {match: self._held(match, relays) for match in (*supported.endpoints, *plain)}
        obstacles = {match: self._obstacle(match, service.ref, supported) or held[match] for match in held}
        taken = tuple(filter(None, held.values()))
        remarks = (
            *supported.remarks,
            *filter(None, obstacles.values()),
            *(f"port {port}: without PROXY: not redirected" for port in supported.plain_ports),
        )
        matches = [match for match in supported.endpoints if obstacles[match] is None]
        whole = supported.wholly and not any(obstacles.values())
        if not matches or not (whole or supported.redirected):
            refusal = refused("PortTaken", "; ".join(taken)) if taken else NOTHING_LEFT
            return Unserved(refusal, remarks, taken=taken)
        for place in places.values():
            if isinstance(place, Conclusion):
                return Unserved(place, remarks)
        redirects = tuple(
            Redirect(match, Endpoint(relays[match.address.version], match.port), service.ref)
            for match in sorted(matches, key=Endpoint.sort_key)
        )
        targets = tuple(sorted({redirect.to.address for redirect in redirects}, key=sort_key))
        return RelayPlan(
            listeners=self._listeners(redirects, service, versions, supported.plain_ports if whole else ()),
            redirects=redirects if supported.redirected else (),
            shown_at=targets,
            hosts_addresses=targets if whole else (),
            remarks=remarks,
            taken=taken,
        )

    def _relay_address(self, ref: ObjectRef, family: int) -> IPAddress | Conclusion:
        address = self._capacity.relay_addresses[family].get(ref.path)
        network = self._config.relay.ipv4 if family == 4 else self._config.relay.ipv6
        if user := self._in_use[family]:
            reason = f"relay.ipv{family}, {network}, has {user}: uninstall, then choose another on all nodes"
            return refused("AddressInUse", reason)
        if address is None:
            reason = f"no address is left in {network}: uninstall, then widen relay.ipv{family} on all nodes"
            return refused("RangeExhausted", reason)
        used = [local for local in self._facts.addresses if local.address == address and not local.ours]
        if not used:
            return address
        reason = (
            f"its relay address {address} is already used on {used[0].interface} by another program: remove "
            f"it there, or uninstall, then choose another relay.ipv{family}, the same on all nodes"
        )
        return refused("AddressInUse", reason)

    def _obstacle(self, match: Endpoint, ref: ObjectRef, eligible: Eligible) -> str | None:
        if eligible.redirected and (obstacle := self._owners.obstacle(match, ref, self._facts.api_servers)):
            return obstacle
        holder, options = NODE_PORTS.get(match.port), self._config.load_balancers
        if match.port in options.node_port_range.ports:
            holder = "kube-proxy (loadBalancers.nodePortRange: it answers health checks there)"
        if holder and match.port not in options.allow_ports:
            return (
                f"{match}: not relayed: port {match.port} is for the node's own {holder}; "
                "give the Service another port, or list this one in loadBalancers.allowPorts"
            )
        return None

    def _held(self, match: Endpoint, relays: Mapping[int, IPAddress]) -> str | None:
        """Why the relay can't listen for it: another program has the port, everywhere or at the relay's."""
        if (relay := relays.get(match.address.version)) is None:
            return None
        bind = Endpoint(relay, match.port)
        if (uid := port_holder(self._facts.port_holders, bind)) is None:
            return None
        where = f"{bind}" if bind in self._facts.port_holders else f"every IPv{match.address.version} address"
        return (
            f"{match}: the relay can't listen: a process of user {uid} on this node holds port {match.port} "
            f"of {where}"
        )

    def _listeners(
        self,
        redirects: Iterable[Redirect],
        service: Service,
        versions: Mapping[int, ProxyVersion],
        plain_ports: Iterable[int],
    ) -> tuple[Listener, ...]:
        """Send to the ClusterIP of the bind's family; to the other one where the Service has only that."""
        binds = {redirect.to for redirect in redirects}
        binds |= {Endpoint(bind.address, port) for bind in binds for port in plain_ports}
        listeners = []
        for bind in sorted(binds, key=Endpoint.sort_key):
            family, version = bind.address.version, versions.get(bind.port)
            same_family = [address for address in service.cluster_ips if address.version == family]
            server = Endpoint((same_family or service.cluster_ips)[0], bind.port)
            # Without the header, the source is not passed on.
            node_address = self._source_addresses.get(family) if version else None
            listeners.append(Listener(bind, server, version, service.ref, node_address))
        return tuple(listeners)
