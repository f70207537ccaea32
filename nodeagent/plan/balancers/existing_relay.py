"""How a load balancer is relayed by an existing relay Service: `relay.kind: service`. Pure.

It sends to one ingress controller, so it serves one load balancer: the first by precedence that can be
relayed. Hosts lines point at the Service's ClusterIP. DNAT can't: the chain that translates first wins, and
kube-proxy's no longer runs for that connection; so DNAT points at a ready pod of the Service.
"""

from collections.abc import Mapping
from hashlib import sha256

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint
from nodeagent.model.decisions import refused, skipped
from nodeagent.model.desired import Redirect
from nodeagent.model.facts import Facts
from nodeagent.model.objects import ObjectRef, RelayService, Snapshot
from nodeagent.plan.balancers.eligibility import Eligible, Owners, Unserved
from nodeagent.plan.balancers.relaying import NOTHING_LEFT, RelayPlan


class ExistingRelay:
    """One such Service."""

    def __init__(self, snapshot: Snapshot, facts: Facts, config: Config, owners: Owners) -> None:
        self._path = config.relay.service.path
        self._service = snapshot.relay_service
        self._endpoints = snapshot.relay_endpoints
        self._owners = owners
        self._facts = facts

    def plans(self, eligible: Mapping[ObjectRef, Eligible]) -> dict[ObjectRef, RelayPlan | Unserved]:
        """Return the plan of the one that it serves, and why it does not serve the others."""
        plans = {ref: self._plan(ref, part) for ref, part in eligible.items()}
        holder = next((ref for ref, plan in plans.items() if isinstance(plan, RelayPlan)), None)
        reason = (
            f"the relay Service {self._path} serves one load balancer, and that is {holder}, "
            "which is listed or older: loadBalancers.services chooses; relay.kind: node serves all of them"
        )
        for ref, plan in plans.items():
            if isinstance(plan, RelayPlan) and ref != holder:
                plans[ref] = Unserved(skipped("RelayTaken", reason), eligible[ref].remarks)
        return plans

    def _plan(self, ref: ObjectRef, eligible: Eligible) -> RelayPlan | Unserved:
        relay = self._service
        if relay is None or not relay.cluster_ips:
            reason = f"the relay Service {self._path} is missing or has no ClusterIP (relay.service)"
            return Unserved(refused("NoRelayService", reason), eligible.remarks)
        plain = [
            f"port {port}: without PROXY, which {relay.ref} adds on every port: hostnames are left to DNAT"
            for port in eligible.plain_ports
        ]
        obstacles = {
            match: self._owners.obstacle(match, ref, self._facts.api_servers) if eligible.redirected else None
            for match in eligible.endpoints
        }
        targets = {match: self._target(match, relay) for match, why in obstacles.items() if why is None}
        if not targets:
            return Unserved(NOTHING_LEFT, eligible.remarks)
        families = {address.version for address in eligible.addresses}
        of_families = tuple(address for address in relay.cluster_ips if address.version in families)
        cluster_ips = of_families or relay.cluster_ips
        return RelayPlan(
            listeners=(),
            redirects=tuple(
                Redirect(match, target, ref)
                for match, target in sorted(targets.items(), key=lambda item: item[0].sort_key())
                if isinstance(target, Endpoint) and eligible.redirected
            ),
            shown_at=cluster_ips,
            hosts_addresses=() if plain or not eligible.wholly else cluster_ips,
            remarks=(
                *eligible.remarks,
                *plain,
                *(why for why in obstacles.values() if why),
                *dict.fromkeys(target for target in targets.values() if isinstance(target, str)),
            ),
        )

    def _target(self, match: Endpoint, relay: RelayService) -> Endpoint | str:
        names = [port.name for port in relay.ports if (port.port, port.protocol) == (match.port, "TCP")]
        if not names:
            return f"port {match.port}: not redirected: {relay.ref} has no such port"
        family = match.address.version
        ready = [
            endpoint
            for endpoint in self._endpoints
            if endpoint.ready and endpoint.port_name == names[0] and endpoint.address.version == family
        ]
        if not ready:
            return f"port {match.port}: not redirected: no IPv{family} endpoint of {relay.ref} is ready"
        node = self._facts.node_name
        # This node's own pod first, then rendezvous hashing, so one pod's end moves few.
        best = max(
            ready, key=lambda pod: (pod.node_name == node, sha256(f"{node} {pod.address}".encode()).digest())
        )
        return Endpoint(best.address, best.port)
