"""Gathers all observations for the judgements; reads and connects, and changes nothing."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path

from nodeagent.components.node import ActualState
from nodeagent.config.option_types import DNS_PORT
from nodeagent.config.options import Config, LoadBalancerOptions
from nodeagent.doctor import node_findings, probing
from nodeagent.doctor.findings import CheckStatus, Code, Finding
from nodeagent.doctor.load_balancer_findings import LEFT_ALONE, LoadBalancerObservation, load_balancer_finding
from nodeagent.doctor.paths import conclude, path_finding
from nodeagent.errors import ApplyError
from nodeagent.model import objects as model
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.decisions import DecisionStatus, NameDecision
from nodeagent.model.desired import Desired, DnatRules
from nodeagent.model.facts import DnsReply, Facts, Upstreams
from nodeagent.observe.transition_log import in_turn
from nodeagent.plan.balancers.load_balancers import LoadBalancerPlanner
from nodeagent.plan.balancers.this_node import AddressRules
from nodeagent.plan.identity.identify import Identity, cloud_of, cloud_scheme, identify
from nodeagent.sources.connection_tests import ask_each
from nodeagent.sources.kubernetes.single_requests import ClusterAnswers
from nodeagent.sources.node import KubeProxy, read_environment, read_kube_proxy, resolve
from nodeagent.sources.upstream_dns import ask_upstream

_MOST_NAMES = 100
"""Of load balancers in turn: a DNS server that does not answer costs seconds for each two dozen."""


def identities(snapshot: model.Snapshot, options: LoadBalancerOptions) -> dict[model.ObjectRef, Identity]:
    """Return whose each load balancer is, by all Nodes if they are known. Pure.

    An agent knows its own Node alone, so where Nodes are of several clouds, some agents may skip it.
    """
    provider_id = cloud_of(replace(snapshot, node=None) if snapshot.nodes else snapshot)
    clouds = {cloud_scheme(node.provider_id): node.provider_id for node in snapshot.nodes}
    by_ref = {service.ref: identify(service, options, provider_id) for service in snapshot.services}
    for service in snapshot.services if len(clouds) > 1 else ():
        identity = by_ref[service.ref]
        by_cloud = ((name, identify(service, options, cloud)) for name, cloud in sorted(clouds.items()))
        notes = (
            f"on Nodes of {name or 'no cloud'}, nodeagent skips it: {other.reason}"
            for name, other in by_cloud
            if identity.proxy and not other.proxy
        )
        by_ref[service.ref] = replace(identity, remarks=(*identity.remarks, *notes))
    return by_ref


def _unreadable(snapshot: model.Snapshot) -> list[Finding]:
    problems = [f"{entry.where}: {entry.reason}" for entry in snapshot.unreadable]
    if not problems:
        return []
    decisive = any(entry.decisive for entry in snapshot.unreadable)
    code = Code.ObjectsUnreadable if decisive else Code.ObjectsSkipped
    seen = f"{len(problems)} could not be used, and are not part of this report"
    return [Finding.of(code, "objects", seen, problems)]


def _external(snapshot: model.Snapshot, identities: Mapping[model.ObjectRef, Identity]) -> list[Finding]:
    """Return the findings on externalIPs, which kube-proxy short-circuits like a load balancer's addresses.

    Those of a load balancer count unless its own finding says as much, or it is known to send no header.
    """
    of_balancers = [
        model.ExternalIPs(service.ref, ips, service.ports)
        for service in snapshot.services
        if (identity := identities[service.ref]).code not in LEFT_ALONE
        if identity.proxy or not identity.stated
        if (ips := tuple(ip for ip in service.external_ips if ip not in service.load_balancer_ips))
    ]
    seen = (
        "its externalIPs are short-circuited by kube-proxy; nothing says whether connections from "
        "outside arrive there with the PROXY header"
    )
    remedy = (
        "run curl http://HOSTNAME/ on a node and outside the cluster: if only the node's fails, they do",
        "then remove spec.externalIPs if NodePorts or host ports take outside traffic anyway (docs/fixes.md)",
    )
    return [
        Finding.of(Code.ExternalIPs, external.ref.path, seen, [f"spec.externalIPs: {addresses}"], remedy)
        for external in (*snapshot.external_ips, *of_balancers)
        if any(port.protocol == "TCP" for port in external.ports)
        if (addresses := ", ".join(map(str, external.addresses)))
    ]


@dataclass(frozen=True)
class Examination:
    """What the doctor examines.

    Attributes:
        elsewhere: why this machine is not the node; empty if it is.
        host: the hostname to request; empty for those that the plan knows.
        agent: what the node's agent says, or off the node those of all nodes, if asked.
        served: the least number of load balancers that one of all agents serves.
    """

    config: Config
    snapshot: model.Snapshot
    facts: Facts
    desired: Desired
    actual: ActualState
    cluster: ClusterAnswers
    elsewhere: str
    host: str
    agent: Finding | None = None
    served: int = 0

    def findings(self) -> list[Finding]:
        """Every finding, in no particular order; the text groups them."""
        external = _external(self.snapshot, self._identities)
        instead = {finding.subject for finding in external}
        seen = self._off_node() if self.elsewhere else self._on_node()
        why = "claim hostnames and are not read: DNAT serves these, hosts lines and CoreDNS do not"
        not_read = Finding.of(Code.KindsNotRead, ", ".join(self.cluster.unread), why)
        return [
            *(
                finding
                for finding in seen
                if finding.subject not in instead or finding.status != CheckStatus.NOT_AFFECTED
            ),
            *([self.agent] if self.agent else []),
            *external,
            *_unreadable(self.snapshot),
            *([not_read] if self.cluster.unread else []),
        ]

    @cached_property
    def _identities(self) -> dict[model.ObjectRef, Identity]:
        return identities(self.snapshot, self.config.load_balancers)

    @cached_property
    def _sending(self) -> set[model.ObjectRef]:
        return {ref for ref, identity in self._identities.items() if identity.proxy}

    def _off_node(self) -> list[Finding]:
        skipped = Finding.of(
            Code.NotThisNode,
            f"node {self.facts.node_name}" if self.snapshot.node else "connections",
            f"{self.elsewhere}: connections, data plane and names were not checked",
            remedy=("run nodeagent doctor on a node, and pass its name: --node NAME",),
        )
        return [*self._load_balancers(None), skipped]

    def _on_node(self) -> list[Finding]:
        snapshot = self.snapshot
        examined = in_turn(
            (lb for lb in snapshot.services if self._identities[lb.ref].code not in LEFT_ALONE),
            lambda service: service.ref.namespace,
        )
        claimants = chain[model.ClusterObject](
            snapshot.ingresses, snapshot.routes, snapshot.controller_routes, snapshot.services
        )
        oldest_first = [claimant.ref for claimant in sorted(claimants, key=model.by_age)]
        hosts = probing.choose_hosts(self.desired, self.host, examined, oldest_first)
        looked_up = sorted({*([self.host] if self.host else []), *[*hosts.values()][:_MOST_NAMES]})
        published = probing.published_names(in_turn(snapshot.services, lambda service: service.ref.namespace))
        led_to = ask_each((*published[:_MOST_NAMES], *looked_up), partial(resolve, self.config.hosts))
        kube_proxy = read_kube_proxy(self.actual.addresses.state().addresses)
        dnat = self._dnat()
        knowledge = probing.Knowledge(
            relays=self._standing_relays(dnat),
            redirected=None if dnat is None else frozenset(redirect.match for redirect in dnat.redirects),
            in_rules=kube_proxy.held if kube_proxy.modes else None,
            led_to=led_to,
        )
        asked = [(service, self._identities[service.ref].versions) for service in examined]
        rules = AddressRules(self.snapshot, self.facts, self.config)
        observed = probing.observe(probing.find_targets(asked, hosts, led_to, rules, self.facts), knowledge)
        paths: dict[model.ObjectRef, list[Code]] = {service.ref: [] for service in examined}
        for seen in observed:
            paths[seen.target.service.ref].append(conclude(seen))
        names = self._names(looked_up, led_to)
        measured = [seen.bypassed for seen in observed if seen.relayed or seen.bypassed]
        return [
            *self._load_balancers(paths),
            *map(path_finding, observed),
            *self._wiring(kube_proxy, dnat, names, bypassed=any(measured) if measured else None),
            *map(node_findings.name_finding, names),
        ]

    def _load_balancers(self, paths: Mapping[model.ObjectRef, list[Code]] | None) -> list[Finding]:
        agent, cluster = self.agent, self.cluster
        nodes = frozenset[IPAddress]().union(*(node.addresses for node in self.snapshot.nodes))
        # All agents are in sync, and serve no fewer load balancers than send the header.
        by_fleet = agent is not None and agent.code == Code.AgentInSync and self.served >= len(self._sending)
        facts, decided = self.facts, self.desired.load_balancers
        if self.elsewhere:
            # The ports and addresses of this machine are not a node's.
            facts = Facts(facts.node_name, api_servers=facts.api_servers)
            planned = LoadBalancerPlanner(self.config).plan(self.snapshot, facts)
            decided = tuple(plan.decision for plan in planned)
        refusals = {
            decision.load_balancer: (
                decision.reason,
                *(note for note in decision.remarks if note not in decision.reason),
            )
            for decision in decided
            if decision.status is DecisionStatus.REFUSED
        }
        observations = (
            LoadBalancerObservation(
                service=service,
                identity=self._identities[service.ref],
                paths=None if paths is None else tuple(paths.get(service.ref, ())),
                node_addresses=nodes,
                by_fleet=by_fleet and paths is None,
                refusal=refusals.get(service.ref, ()) if self._identities[service.ref].proxy else (),
            )
            for service in sorted(self.snapshot.services, key=lambda service: service.ref)
        )
        return [load_balancer_finding(seen, cluster.version, cluster.policy_api) for seen in observations]

    def _dnat(self) -> DnatRules | None:
        with suppress(ApplyError):
            state = self.actual.dnat.state()
            return None if state.unreadable else state.rules
        return None

    def _standing_relays(self, dnat: DnatRules | None) -> dict[Endpoint, Endpoint]:
        """Return the relays in use: by DNAT, or because their address is on this node."""
        standing = {address.address for address in self.facts.addresses if address.ours}
        relays = {
            match: relay
            for match, relay in probing.relays_of(self.desired, self.config).items()
            if relay.address in standing
        }
        if dnat is not None:
            relays |= {redirect.match: redirect.to for redirect in dnat.redirects}
        return relays

    def _wiring(
        self,
        kube_proxy: KubeProxy,
        dnat: DnatRules | None,
        names: Sequence[node_findings.NameObservation],
        *,
        bypassed: bool | None,
    ) -> list[Finding]:
        desired, facts, hosts_file = self.desired, self.facts, Path(self.config.hosts.file)
        environment = read_environment(hosts_file)
        hosts_written = False
        with suppress(ApplyError):
            hosts_written = bool(self.actual.hosts.state().own_names)
        findings = node_findings.hosts_line_findings(desired, facts.user_names, str(hosts_file))
        if desired.hosts or hosts_written:
            findings += node_findings.name_order_findings(environment.name_order)
        data_plane = node_findings.data_plane_finding(
            kube_proxy, environment, bypassed=bypassed, hosts_written=hosts_written
        )
        served = any(decision.status is DecisionStatus.SERVED for decision in desired.load_balancers)
        if served or data_plane.code != Code.SocketBalancer:  # it is in the way of nothing
            findings.append(data_plane)
        if any(address.ours for address in facts.addresses):
            answers = [name.by_coredns for name in names if name.by_coredns is not None]
            signs = None if environment.socket_balancer is None else bool(environment.socket_balancer)
            pods = node_findings.pods_finding(
                redirected=bool(desired.dnat.pods if dnat is None else dnat.pods),
                bypassed=signs if bypassed is None else bypassed,
                by_kube_proxy=bool(kube_proxy.modes) and not environment.cni,
                by_coredns=any(answers) if answers else None,
                said=self.config.coredns.serves_pods,
            )
            findings.append(pods)
        return findings

    def _names(
        self, hosts: Sequence[str], led_to: Mapping[str, tuple[IPAddress, ...]]
    ) -> list[node_findings.NameObservation]:
        """Look up each of `hosts` in three ways; `led_to` has the answers of this host's resolver."""
        # dnspython costs 0.07 s to import: only if hostnames are looked up.
        from nodeagent.dns.lookup import Resolver  # noqa: PLC0415

        upstream = ask_each(hosts, ask_upstream(self.config.hosts))
        dns = self.cluster.dns
        cluster: dict[str, DnsReply] = {}
        if dns is not None:
            cluster = ask_each(hosts, Resolver(lambda: Upstreams((Endpoint(dns, DNS_PORT),))).ask)
        decisions = self.desired.load_balancers
        published = (
            ip for name in probing.published_names(self.snapshot.services) for ip in led_to.get(name, ())
        )
        balancers = frozenset((*(ip for planned in decisions for ip in planned.addresses), *published))
        return [
            node_findings.NameObservation(
                name=name,
                host=led_to.get(name, ()),
                upstream=reply,
                cluster=cluster.get(name),
                cluster_why=f"not asked: {self.cluster.why.get('dns', '')}",
                decision=(decision := _decision(self.desired, name)),
                behind_proxy=decision is not None and decision.load_balancer in self._sending,
                load_balancers=balancers,
                relays=frozenset(ip for planned in decisions for ip in planned.relay_addresses),
            )
            for name, reply in upstream.items()
        ]


def _decision(desired: Desired, name: str) -> NameDecision | None:
    """Return the plan's decision on the hostname; of several claims, a served one counts."""
    decisions = [decision for decision in desired.names if decision.name == name]
    return min(decisions, key=lambda decision: decision.status is not DecisionStatus.SERVED, default=None)
