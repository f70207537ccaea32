"""How a load balancer is relayed by an existing relay Service (`relay.kind: service`).

Hosts lines point at the Service's ClusterIP. DNAT can't: the chain that translates first wins, and
kube-proxy's no longer runs for that connection; so DNAT points at a ready pod of the Service.
"""

import hashlib
from collections.abc import Iterable

from msgspec import Struct

from nodeagent.config.options import ServiceName
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Redirect, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, RelayEndpoint, RelayService
from nodeagent.plan.address_rules import Publications, obstacle
from nodeagent.plan.eligibility import Eligible, Refusal
from nodeagent.plan.relaying import Relayed


class RelayServiceContext(Struct, frozen=True):
    """What the decision looks up: the relay Service, and to which Service an address and port belong."""

    name: ServiceName
    service: RelayService | None
    endpoints: tuple[RelayEndpoint, ...]
    published: Publications
    facts: Facts


def relay_by_service(ref: ObjectRef, eligible: Eligible, context: RelayServiceContext) -> Relayed | Refusal:
    """Return the redirects for what is eligible, and the addresses for its hostnames. Pure.

    A relay Service sends to one ingress controller, so it can serve only one load balancer; the caller
    decides which.
    """
    relay = context.service
    if relay is None or not relay.cluster_ips:
        reason = f"the relay Service {context.name.path} is missing or has no ClusterIP (relay.service)"
        return Refusal(Verdict.REFUSED, "NoRelayService", reason, eligible.remarks)
    plain = [
        f"port {port}: without PROXY, which {relay.ref} adds on every port: hostnames are left to DNAT"
        for port in eligible.plain_ports
    ]
    obstacles = {
        match: obstacle(match, ref, context.published, context.facts) for match in eligible.endpoints
    }
    chosen = {match: _target(match, relay, context) for match, why in obstacles.items() if why is None}
    if not chosen:
        return Refusal(
            Verdict.REFUSED,
            "NothingLeft",
            "none of its ports can be relayed: see the notes",
            eligible.remarks,
        )
    return Relayed(
        relay_addresses=(),
        listeners=(),
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


def _target(match: Endpoint, relay: RelayService, context: RelayServiceContext) -> Endpoint | str:
    """Return the pod that serves the port, or why there is none."""
    port = next((port for port in relay.ports if port.port == match.port and port.protocol == "TCP"), None)
    if port is None:
        return f"port {match.port}: not redirected: {relay.ref} has no such port"
    family = match.address.version
    ready = [
        endpoint
        for endpoint in context.endpoints
        if endpoint.ready and endpoint.port_name == port.name and endpoint.address.version == family
    ]
    if not ready:
        return f"port {match.port}: not redirected: no IPv{family} endpoint of {relay.ref} is ready"
    best = max(ready, key=lambda endpoint: _preference(endpoint, context.facts.node_name))
    return Endpoint(best.address, best.port)


def _preference(endpoint: RelayEndpoint, node_name: str) -> tuple[bool, bytes]:
    """Return a sort key: this node's own pod first, then rendezvous hashing, so one pod's end moves few."""
    weight = hashlib.sha256(f"{node_name} {endpoint.address}".encode()).digest()
    return (endpoint.node_name == node_name, weight)


def _cluster_ips(relay: RelayService, addresses: Iterable[IPAddress]) -> tuple[IPAddress, ...]:
    families = {address.version for address in addresses}
    same = tuple(address for address in relay.cluster_ips if address.version in families)
    return same or relay.cluster_ips
