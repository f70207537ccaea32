"""Gathers all observations for the judgements. EFFECTS: reads and connections; changes nothing."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from nodeagent.components.node import ActualState
from nodeagent.config.option_types import DNS_PORT
from nodeagent.config.options import Config, LoadBalancerOptions
from nodeagent.doctor.data_plane import data_plane_finding, pods_finding
from nodeagent.doctor.findings import Code, Finding
from nodeagent.doctor.load_balancer_findings import (
    LEFT_ALONE,
    LoadBalancerObservation,
    load_balancer_finding,
    provider_of,
)
from nodeagent.doctor.names import (
    NameObservation,
    hosts_line_findings,
    name_finding,
    name_order_findings,
)
from nodeagent.doctor.paths import conclude, path_finding
from nodeagent.doctor.probing import (
    Knowledge,
    choose_hosts,
    find_targets,
    observe,
    published_names,
    relays_of,
)
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import DecisionStatus, Desired, DnatRules, NameDecision
from nodeagent.model.facts import DnsReply, Facts
from nodeagent.model.objects import ObjectRef, Snapshot
from nodeagent.plan.address_rules import AddressRules
from nodeagent.plan.detection.decision import Detection, detect
from nodeagent.sources.connection_tests import ask_each
from nodeagent.sources.kubernetes.single_requests import ClusterAnswers
from nodeagent.sources.node.environment import read_environment, resolve
from nodeagent.sources.node.service_proxy import KubeProxy, read_kube_proxy


class Question(Struct, frozen=True):
    """What the doctor examines, and what is known already.

    Attributes:
        config: the configuration, the agent's own on a node.
        snapshot: the cluster's objects.
        facts: this machine's.
        desired: the desired state of the node.
        actual: the actual state of the node.
        cluster: what the API server answered.
        elsewhere: why this machine is not the node; empty if it is.
        host: the hostname to request; empty for those that the plan knows.
        agent: what the node's agent says; if this machine is not the node, those of all nodes. None if that
            was not asked.
        served: the least number of load balancers that one of all agents serves.
    """

    config: Config
    snapshot: Snapshot
    facts: Facts
    desired: Desired
    actual: ActualState
    cluster: ClusterAnswers
    elsewhere: str
    host: str
    agent: Finding | None = None
    served: int = 0


def examine(question: Question) -> list[Finding]:
    """Every finding, in no particular order; the text groups them."""
    examination = _Examination(question)
    return [
        *(examination.off_node() if question.elsewhere else examination.on_node()),
        *([question.agent] if question.agent else []),
        *_unreadable(question.snapshot),
        *_not_read(question.cluster.unread),
    ]


def detections(snapshot: Snapshot, options: LoadBalancerOptions) -> dict[ObjectRef, Detection]:
    """Return what decides for each load balancer. Pure."""
    return {service.ref: detect(service, options, snapshot.node) for service in snapshot.services}


def _unreadable(snapshot: Snapshot) -> list[Finding]:
    found = [f"{entry.where}: {entry.reason}" for entry in snapshot.unreadable]
    if not found:
        return []
    seen = f"{len(found)} could not be used: what they say is not part of this report"
    return [Finding.of(Code.ObjectsUnreadable, "objects", seen, tuple(found))]


def _not_read(kinds: tuple[str, ...]) -> list[Finding]:
    seen = "claim hostnames and are not read: DNAT serves these, hosts lines and CoreDNS do not"
    return [Finding.of(Code.KindsNotRead, ", ".join(kinds), seen)] if kinds else []


class _Examination:
    """What is looked at for one question, step by step."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._services = question.snapshot.services
        self._desired = question.desired
        self._actual = question.actual
        self._hosts_file = Path(question.config.hosts.file)
        self._resolve = partial(resolve, question.config.hosts)
        self._detected = detections(question.snapshot, question.config.load_balancers)
        self._sending = {ref for ref, detection in self._detected.items() if detection.proxy}

    def off_node(self) -> list[Finding]:
        question = self._question
        skipped = Finding.of(
            Code.NotThisNode,
            f"node {question.facts.node_name}",
            f"{question.elsewhere}: connections, data plane and names were not checked",
            remedy=("run nodeagent doctor on a node, and pass its name: --node NAME",),
        )
        return [*self._load_balancers(None), skipped]

    def on_node(self) -> list[Finding]:
        question = self._question
        examined = [one for one in self._services if self._detected[one.ref].code not in LEFT_ALONE]
        hosts = choose_hosts(self._desired, question.host, examined)
        looked_up = sorted({*hosts.values(), *([question.host] if question.host else [])})
        led_to = ask_each((*published_names(self._services), *looked_up), self._resolve)
        kube_proxy = read_kube_proxy(self._actual.addresses.state().addresses)
        dnat = self._dnat()
        knowledge = Knowledge(
            relays=self._standing_relays(dnat),
            redirected=None if dnat is None else frozenset(one.match for one in dnat.redirects),
            in_rules=kube_proxy.held if kube_proxy.modes else None,
            led_to=led_to,
        )
        asked = [(service, self._detected[service.ref].versions) for service in examined]
        rules = AddressRules(question.snapshot, question.facts, question.config)
        observed = observe(find_targets(asked, hosts, led_to, rules, question.facts), knowledge)
        paths: dict[ObjectRef, list[Code]] = {service.ref: [] for service in examined}
        for seen in observed:
            paths[seen.target.service.ref].append(conclude(seen))
        names = self._names(looked_up, led_to)
        measured = [seen.bypassed for seen in observed if seen.relayed or seen.bypassed]
        return [
            *self._load_balancers(paths),
            *map(path_finding, observed),
            *self._wiring(kube_proxy, dnat, names, bypassed=any(measured) if measured else None),
            *map(name_finding, names),
        ]

    def _load_balancers(self, paths: Mapping[ObjectRef, list[Code]] | None) -> list[Finding]:
        agent, cluster, node = self._question.agent, self._question.cluster, self._question.snapshot.node
        nodes = frozenset[IPAddress]().union(*(each.addresses for each in self._question.snapshot.nodes))
        # All agents are in sync, and serve no fewer load balancers than send the header.
        by_fleet = (
            agent is not None
            and agent.code == Code.AgentInSync
            and self._question.served >= len(self._sending)
        )
        seen = (
            LoadBalancerObservation(
                service=service,
                detected=self._detected[service.ref],
                paths=None if paths is None else tuple(paths.get(service.ref, ())),
                provider=provider_of(service, node),
                node_addresses=nodes,
                by_fleet=by_fleet and paths is None,
            )
            for service in sorted(self._services, key=lambda service: service.ref)
        )
        return [load_balancer_finding(each, cluster.version, cluster.policy_api) for each in seen]

    def _dnat(self) -> DnatRules | None:
        """Return the DNAT rules in the kernel; None if they can't be read."""
        try:
            state = self._actual.dnat.state()
        except ApplyError:
            return None
        return None if state.unreadable else state.rules

    def _hosts_written(self) -> bool:
        try:
            return bool(self._actual.hosts.state().own_names)
        except ApplyError:
            return False

    def _standing_relays(self, dnat: DnatRules | None) -> dict[Endpoint, Endpoint]:
        """Return the relays in use: by DNAT, or because their address is on this node."""
        standing = {address.address for address in self._question.facts.addresses if address.ours}
        found = {
            match: relay
            for match, relay in relays_of(self._desired, self._question.config).items()
            if relay.address in standing
        }
        if dnat is not None:
            found |= {redirect.match: redirect.to for redirect in dnat.redirects}
        return found

    def _wiring(
        self,
        kube_proxy: KubeProxy,
        dnat: DnatRules | None,
        names: Sequence[NameObservation],
        *,
        bypassed: bool | None,
    ) -> list[Finding]:
        desired, facts = self._desired, self._question.facts
        environment = read_environment(self._hosts_file)
        hosts_written = self._hosts_written()
        found = hosts_line_findings(desired, facts.user_names, str(self._hosts_file))
        if desired.hosts or hosts_written:
            found += name_order_findings(environment.name_order)
        data_plane = data_plane_finding(
            kube_proxy, environment, bypassed=bypassed, hosts_written=hosts_written
        )
        served = any(decision.status is DecisionStatus.SERVED for decision in desired.load_balancers)
        if served or data_plane.code != Code.SocketBalancer:  # it is in the way of nothing
            found.append(data_plane)
        if any(address.ours for address in facts.addresses):
            answers = [name.by_coredns for name in names if name.by_coredns is not None]
            signs = None if environment.socket_balancer is None else bool(environment.socket_balancer)
            pods = pods_finding(
                redirected=bool(desired.dnat.pods if dnat is None else dnat.pods),
                bypassed=signs if bypassed is None else bypassed,
                by_kube_proxy=bool(kube_proxy.modes) and not environment.cni,
                by_coredns=any(answers) if answers else None,
                said=self._question.config.coredns.serves_pods,
            )
            found.append(pods)
        return found

    def _names(
        self, hosts: Sequence[str], led_to: Mapping[str, tuple[IPAddress, ...]]
    ) -> list[NameObservation]:
        """Look up each of `hosts` in three ways; `led_to` has the answers of this host's resolver."""
        # dnspython costs 0.07 s to import: only if hostnames are looked up.
        from nodeagent.sources.dns import Resolver, Upstreams, find_upstreams  # noqa: PLC0415

        upstream = ask_each(hosts, Resolver(lambda: find_upstreams(self._question.config.hosts)).ask)
        dns = self._question.cluster.dns
        cluster: dict[str, DnsReply] = {}
        if dns is not None:
            cluster = ask_each(hosts, Resolver(lambda: Upstreams((Endpoint(dns, DNS_PORT),))).ask)
        decisions = self._desired.load_balancers
        published = (one for name in published_names(self._services) for one in led_to.get(name, ()))
        balancers = frozenset((*(one for each in decisions for one in each.addresses), *published))
        return [
            NameObservation(
                name=name,
                host=led_to.get(name, ()),
                upstream=reply,
                cluster=cluster.get(name),
                cluster_why=f"not asked: {self._question.cluster.why.get('dns', '')}",
                decision=(decision := _decision(self._desired, name)),
                behind_proxy=decision is not None and decision.load_balancer in self._sending,
                load_balancers=balancers,
                relays=frozenset(one for each in decisions for one in each.relay_addresses),
            )
            for name, reply in upstream.items()
        ]


def _decision(desired: Desired, name: str) -> NameDecision | None:
    """Return the plan's decision on the hostname. Of several claims, a served one counts."""
    found = [decision for decision in desired.names if decision.name == name]
    return min(found, key=lambda decision: decision.status is not DecisionStatus.SERVED, default=None)
