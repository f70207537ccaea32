"""How one load balancer is relayed: by this node's own relay, or by an existing relay Service."""

from collections.abc import Iterable, Mapping
from hashlib import sha256

from msgspec.structs import replace

from nodeagent.config.options import Config
from nodeagent.model.addresses import Endpoint, IPAddress, sort_key
from nodeagent.model.desired import Conclusion, Listener, Redirect, refused, skipped
from nodeagent.model.facts import Facts, port_holder
from nodeagent.model.objects import ObjectRef, ProxyVersion, RelayService, Service, Snapshot
from nodeagent.plan.balancers.address_rules import Publications, obstacle
from nodeagent.plan.balancers.capacity import Capacity
from nodeagent.plan.balancers.eligibility import Relayed, supported_part, unsupported_families

_NOTHING_LEFT = refused("NothingLeft", "none of its ports can be relayed: see the notes")


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
        self._node_ports = config.load_balancers.node_port_range.ports
        # This node's address per family: its Node object's first, else that of outgoing connections.
        self._source_addresses: dict[int, IPAddress] = {}
        for address in (*(snapshot.node.addresses if snapshot.node else ()), *facts.source_addresses):
            self._source_addresses.setdefault(address.version, address)
        self._unsupported = unsupported_families(snapshot, facts)
        self._facts = facts
        self._ranges = {4: config.relay.ipv4, 6: config.relay.ipv6}

    def relayed(self, service: Service, versions: Mapping[int, ProxyVersion], eligible: Relayed) -> Relayed:
        """Return the relay for what is eligible; a port with an obstacle is left out with a note.

        `versions` says what is sent on which port. A port without PROXY is not redirected: kube-proxy's
        short-circuited path serves it. But a hostname covers every port. So if hostnames may point at the
        relay, such a port has a listener there that passes connections on as they are. An address of a
        family that the node does not support is left out, too, and is not missed: the node's clients have
        no use for it.
        """
        conclusion = self._capacity.refusals.get(service.ref)
        if conclusion is not None:
            return Relayed(conclusion, eligible.remarks)
        supported = supported_part(eligible, self._unsupported)
        if supported.refusal:
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
            return Relayed(
                refused("PortTaken", "; ".join(taken)) if taken else _NOTHING_LEFT, remarks, taken=taken
            )
        for place in places.values():
            if isinstance(place, Conclusion):
                return Relayed(place, remarks)
        redirects = tuple(
            Redirect(match, Endpoint(relays[match.address.version], match.port), service.ref)
            for match in sorted(matches, key=Endpoint.sort_key)
        )
        targets = tuple(sorted({redirect.to.address for redirect in redirects}, key=sort_key))
        return replace(
            eligible,
            redirects=redirects if supported.redirected else (),
            listeners=self._listeners(redirects, service, versions, supported.plain_ports if whole else ()),
            remarks=remarks,
            hosts_addresses=targets if whole else (),
            shown_at=targets,
            taken=taken,
        )

    def _relay_address(self, ref: ObjectRef, family: int) -> IPAddress | Conclusion:
        """Return the relay address of a Service; or why it has none here."""
        address = self._capacity.relay_addresses[family].get(ref.path)
        if address is None:
            return refused(
                "RangeExhausted",
                f"no relay address is left in {self._ranges[family]}: widen relay.ipv{family}, the same on "
                "every node",
            )
        for standing in self._facts.addresses:
            if standing.address == address and not standing.ours:
                return refused(
                    "AddressInUse",
                    f"its relay address {address} is already used on {standing.interface} by another "
                    f"program: remove it there, or choose another relay.ipv{family}, the same on every node",
                )
        return address

    def _obstacle(self, match: Endpoint, ref: ObjectRef, eligible: Relayed) -> str | None:
        found = obstacle(match, ref, self._published, self._facts) if eligible.redirected else None
        holder = NODE_PORTS.get(match.port)
        if match.port in self._node_ports:
            holder = "kube-proxy (loadBalancers.nodePortRange: it answers health checks there)"
        if found is None and holder and match.port not in self._allowed_ports:
            return (
                f"{match}: not relayed: port {match.port} is for the node's own {holder}; "
                "give the Service another port, or list this one in loadBalancers.allowPorts"
            )
        return found

    def _held(self, match: Endpoint, relays: Mapping[int, IPAddress]) -> str | None:
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
        found = []
        for bind in sorted(binds, key=Endpoint.sort_key):
            family, version = bind.address.version, versions.get(bind.port)
            same_family = [address for address in service.cluster_ips if address.version == family]
            server = Endpoint((same_family or service.cluster_ips)[0], bind.port)
            # Without the header, the source is not passed on.
            node_address = self._source_addresses.get(family) if version else None
            found.append(Listener(bind, server, version, service.ref, node_address))
        return tuple(found)


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
        examined: Mapping[ObjectRef, Relayed],
    ) -> None:
        self._path = config.relay.service.path
        self._service = snapshot.relay_service
        self._endpoints = snapshot.relay_endpoints
        self._published = published
        self._facts = facts
        self._relayed = {
            ref: self._relay(ref, eligible) for ref, eligible in examined.items() if not eligible.refusal
        }
        self._holder = next((ref for ref, found in self._relayed.items() if not found.refusal), None)

    def relayed(self, service: Service, _: Mapping[int, ProxyVersion], eligible: Relayed) -> Relayed:
        """Return what this node has for the load balancer, or why it has nothing."""
        found = self._relayed[service.ref]
        if found.refusal or self._holder == service.ref:
            return found
        reason = (
            f"the relay Service {self._path} serves one load balancer, and that is {self._holder}, "
            "which is listed or older: loadBalancers.services chooses; relay.kind: node serves all of them"
        )
        return Relayed(skipped("RelayTaken", reason), eligible.remarks)

    def _relay(self, ref: ObjectRef, eligible: Relayed) -> Relayed:
        """Return the redirects for what is eligible, and the addresses for its hostnames."""
        relay = self._service
        if relay is None or not relay.cluster_ips:
            reason = f"the relay Service {self._path} is missing or has no ClusterIP (relay.service)"
            return Relayed(refused("NoRelayService", reason), eligible.remarks)
        plain = [
            f"port {port}: without PROXY, which {relay.ref} adds on every port: hostnames are left to DNAT"
            for port in eligible.plain_ports
        ]
        obstacles = {
            match: obstacle(match, ref, self._published, self._facts) if eligible.redirected else None
            for match in eligible.endpoints
        }
        chosen = {match: self._target(match, relay) for match, why in obstacles.items() if why is None}
        if not chosen:
            return Relayed(_NOTHING_LEFT, eligible.remarks)
        return replace(
            eligible,
            redirects=tuple(
                Redirect(match, target, ref)
                for match, target in sorted(chosen.items(), key=lambda item: item[0].sort_key())
                if isinstance(target, Endpoint) and eligible.redirected
            ),
            remarks=(
                *eligible.remarks,
                *plain,
                *(why for why in obstacles.values() if why),
                *dict.fromkeys(target for target in chosen.values() if isinstance(target, str)),
            ),
            shown_at=_cluster_ips(relay, eligible.addresses),
            hosts_addresses=() if plain or not eligible.wholly else _cluster_ips(relay, eligible.addresses),
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
        node = self._facts.node_name
        # This node's own pod first, then rendezvous hashing, so one pod's end moves few.
        best = max(
            ready,
            key=lambda one: (one.node_name == node, sha256(f"{node} {one.address}".encode()).digest()),
        )
        return Endpoint(best.address, best.port)


def _cluster_ips(relay: RelayService, addresses: Iterable[IPAddress]) -> tuple[IPAddress, ...]:
    families = {address.version for address in addresses}
    same = tuple(address for address in relay.cluster_ips if address.version in families)
    return same or relay.cluster_ips


NODE_PORTS: Mapping[int, str] = {
    # IANA, Service Name and Transport Protocol Port Number Registry.
    22: "SSH server",
    53: "DNS server",
    111: "rpcbind",
    179: "BGP daemon (Calico, Cilium, kube-router, MetalLB)",
    **dict.fromkeys((2375, 2376), "Docker"),
    # kubernetes/ingress-nginx, pkg/flags: healthz-port, in the host's network.
    10254: "ingress controller (health checks)",
    # kubernetes.io/docs/reference/networking/ports-and-protocols; 2381, 2382: k3s docs, "Local Ports".
    **dict.fromkeys((2379, 2380, 2381, 2382), "etcd"),
    6443: "API server",
    10257: "controller manager",
    10259: "scheduler",
    # kubernetes/kubernetes, pkg/cluster/ports; 10255: KubeletConfiguration, readOnlyPort.
    **dict.fromkeys((10248, 10250, 10255), "kubelet"),
    **dict.fromkeys((10249, 10256), "kube-proxy"),
    # kubernetes/cloud-provider, options/webhook.go (10260); OpenShift's registry, below (10263).
    **dict.fromkeys((10258, 10260), "cloud controller manager"),
    10263: "cloud node manager",
    # kubernetes/website, examples/admin/konnectivity.
    **dict.fromkeys((8132, 8133, 8134), "konnectivity server"),
    # k3s docs, installation/requirements; RKE2 docs, install/requirements.
    6444: "API server's load balancer (k3s, RKE2)",
    9345: "supervisor (k3s, RKE2)",
    10010: "container runtime",
    # openshift/enhancements, dev-guide/host-port-registry.md.
    9537: "CRI-O",
    **dict.fromkeys((9977, 9978, 9979), "etcd (OpenShift)"),
    **dict.fromkeys((9258, 9259), "cloud controller manager (OpenShift)"),
    **dict.fromkeys((8797, 22623, 22624), "machine configuration (OpenShift)"),
    **dict.fromkeys((10357, 11443, 17697), "control plane (OpenShift)"),
    # docs.cilium.io, operations/system_requirements, "Firewall Rules"; 9965: its chart, hubble.metrics.port.
    **dict.fromkeys((4240, 4244, 4245, 4250, 4251), "Cilium"),
    **dict.fromkeys((9878, 9879, 9890, 9891, 9893, 9901, 9962, 9963, 9964, 9965), "Cilium"),
    # docs.tigera.io, reference/felix/configuration (9091, 9099); projectcalico/calico, typha/pkg/config (9093
    # and 9098); RKE2 docs, install/requirements (5473).
    **dict.fromkeys((5473, 9091, 9093, 9098, 9099), "Calico"),
    # antrea.io/docs, network-requirements.
    **dict.fromkeys((10349, 10350, 10351), "Antrea"),
    # ovn-org/ovn-kubernetes, dist/images/ovnkube.sh; from 9102 on: OpenShift's registry, above.
    **dict.fromkeys((6641, 6642, 6643, 6644, 9310, 9409, 9410, 9476), "OVN-Kubernetes"),
    **dict.fromkeys((9102, 9103, 9641, 9642, 9643, 9644, 29101, 29102, 29103), "OVN-Kubernetes"),
    # weaveworks/weave: site/faq.md (6781, 6783), prog/weave-kube (6782, 6784).
    **dict.fromkeys((6781, 6782, 6783, 6784), "Weave Net"),
    # kube-router.io/docs/health; its routing controller and amazon-vpc-cni-k8s, cmd/aws-k8s-agent (50051).
    20244: "kube-router",
    50051: "network daemon (kube-router, AWS VPC CNI)",
    # amazon-vpc-cni-k8s, README: DISABLE_METRICS, INTROSPECTION_BIND_ADDRESS.
    **dict.fromkeys((61678, 61679), "AWS VPC CNI"),
    # metallb/metallb, config/controllers/speaker.yaml; frr-metrics: 7473 up to 0.15, 9121 since (config/frr).
    **dict.fromkeys((7472, 7473, 7946, 9121), "MetalLB"),
    # kube-vip/kube-vip, cmd: prometheusHTTPServer.
    2112: "kube-vip",
    # kubernetes/kubernetes, cluster/addons/dns/nodelocaldns (9253); kubernetes/dns, cmd/node-cache (9353).
    **dict.fromkeys((9253, 9353), "NodeLocal DNSCache"),
    # github.com/prometheus/prometheus/wiki/Default-port-allocations.
    9100: "node exporter",
    # kubernetes/node-problem-detector, cmd/options.
    **dict.fromkeys((20256, 20257), "node problem detector"),
    # docs/runbook.md.
    9467: "nodeagent",
}
"""Ports that the daemons of a node bind, each with what listens there by default.

The source is above each: a page of the project's documentation, or the file of its repository that has the
default. Ports that load balancers commonly publish are left out, even if a daemon has one: 80, 443, 3306,
5000, 5001, 6060, 8080, 9000, 9001, 9090, 9443 and 10443. If a program already listens on such a port,
nodeagent sees that and does not relay the port either.

If a relay has one of them first, the program does not start (bind(2): EADDRINUSE), and anyone who can create
a Service could cause that. Ports of other programs are recognized by what already listens.
`loadBalancers.allowPorts` takes single ports off the list."""
