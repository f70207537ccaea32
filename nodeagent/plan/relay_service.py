"""How a load balancer is relayed by an existing relay Service (`relay.kind: service`).

Hosts lines point at the Service's ClusterIP. DNAT can't: the chain that translates first wins, and
kube-proxy's no longer runs for that connection; so DNAT points at a ready pod of the Service.
"""

import hashlib
from collections.abc import Iterable, Mapping

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Redirect, Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, ProxyVersion, RelayEndpoint, RelayService, Service, Snapshot
from nodeagent.plan.address_rules import Publications, obstacle
from nodeagent.plan.eligibility import Eligible, Refusal
from nodeagent.plan.relaying import Relayed


class ExistingRelay:
    """A relay Service. It sends to one ingress controller, so it can serve only one load balancer.

    That is the first by precedence that can be relayed. Pure: it depends on what it is made of alone.

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
