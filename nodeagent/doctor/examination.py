"""Gathers all observations for the judgements. EFFECTS: reads and connections; changes nothing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from nodeagent.agent.convergence import compare
from nodeagent.components.dnat.state import DnatState
from nodeagent.components.hosts.file import is_mount_point
from nodeagent.components.node import ActualState, read_listener_status
from nodeagent.config.option_types import DNS_PORT
from nodeagent.config.options import Config, LoadBalancerOptions
from nodeagent.doctor.agent_state import AgentObservation, PodsObservation, agent_findings, pods_finding
from nodeagent.doctor.findings import Code, Finding
from nodeagent.doctor.load_balancer_findings import (
    LEFT_ALONE,
    LoadBalancerObservation,
    load_balancer_finding,
    provider_of,
)
from nodeagent.doctor.names import (
    NameObservation,
    certificate_finding,
    image_findings,
    name_finding,
    pull_finding,
    registry_of,
)
from nodeagent.doctor.node_wiring import hosts_line_findings, right_addresses, wiring_findings
from nodeagent.doctor.paths import path_finding
from nodeagent.doctor.policy import trust_finding
from nodeagent.doctor.probing import (
    Knowledge,
    choose_hosts,
    find_targets,
    observe,
    observe_certificates,
    published_names,
    relays_of,
)
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import Desired, NameDecision, Verdict
from nodeagent.model.facts import DnsReply, Facts
from nodeagent.model.objects import ObjectRef, Snapshot
from nodeagent.plan.detection.decision import Detection, detect
from nodeagent.sources.kubernetes.questions import ClusterAnswers
from nodeagent.sources.node.environment import HostResolver, read_environment
from nodeagent.sources.node.service_proxy import KubeProxy, read_kube_proxy
from nodeagent.sources.probes.connection_tests import ask_each, verifying_context
from nodeagent.sources.probes.image_pull import rehearse
from nodeagent.sources.probes.registry_http import ImageReference


class FleetReport(Struct, frozen=True):
    """What the agents of all nodes report; `serves` is the least number of load balancers that one serves."""

    finding: Finding
    serves: int = 0


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
        image: the image whose pull is tested; None for none.
        fleet: what the agents of all nodes report, if this machine is not the node; None if not asked.
    """

    config: Config
    snapshot: Snapshot
    facts: Facts
    desired: Desired
    actual: ActualState
    cluster: ClusterAnswers
    elsewhere: str
    host: str
    image: ImageReference | None
    fleet: FleetReport | None = None


def examine(question: Question) -> list[Finding]:
    """Every finding, in no particular order; the text groups them."""
    return [
        *(_off_node(question) if question.elsewhere else _on_node(question)),
        *_trust(question),
        *_unreadable(question),
        *rehearse_pull(question),
    ]


def _trust(question: Question) -> list[Finding]:
    nodes = question.cluster.nodes
    sending = any(detection.proxy for detection in _detected(question).values())
    return [trust_finding(nodes)] if sending and nodes and nodes.addresses else []


def _unreadable(question: Question) -> list[Finding]:
    found = [f"{entry.where}: {entry.reason}" for entry in question.snapshot.unreadable]
    if not found:
        return []
    seen = f"{len(found)} could not be used: what they say is not part of this report"
    return [Finding(Code.ObjectsUnreadable, "objects", seen, tuple(found))]


def _off_node(question: Question) -> list[Finding]:
    skipped = Finding(
        Code.NotThisNode,
        f"node {question.facts.node_name}",
        f"{question.elsewhere}: connections, wiring and nodeagent's state were not checked",
        remedy=("run nodeagent doctor on a node, and pass its name: --node NAME",),
    )
    fleet = [question.fleet.finding] if question.fleet else []
    return [*_load_balancers(question, _detected(question), None), *fleet, skipped]


def _on_node(question: Question) -> list[Finding]:
    services = question.snapshot.services
    detected = _detected(question)
    examined = [service for service in services if detected[service.ref].code not in LEFT_ALONE]
    hosts = choose_hosts(question.desired, question.host, examined)
    resolver = HostResolver(Path(question.config.hosts.file))
    looked_up = {*hosts.values(), *([question.host] if question.host else [])}
    led_to = ask_each((*published_names(services), *sorted(looked_up)), resolver.resolve)
    rules = read_kube_proxy(question.actual.addresses.state().addresses)
    dnat = _dnat(question.actual)
    readable = dnat is not None and not dnat.unreadable
    knowledge = Knowledge(
        relays=_standing_relays(question, dnat),
        redirected=frozenset(one.match for one in dnat.rules.redirects) if dnat and readable else None,
        in_rules=rules.held if rules.modes else None,
        led_to=led_to,
    )
    balancers, connections, bypassed = _connections(question, hosts, knowledge)
    names = observe_names(question, sorted(looked_up), led_to)
    return [
        *balancers,
        *connections,
        *_node(question, rules, dnat, names, bypassed=bypassed),
        *map(name_finding, names),
        *examine_images(question, balancers, resolver),
    ]


def _connections(
    question: Question, hosts: Mapping[ObjectRef, str], knowledge: Knowledge
) -> tuple[list[Finding], list[Finding], bool | None]:
    """Return the findings on the load balancers and on the connections to them, and if these bypass DNAT."""
    detected = _detected(question)
    asked = [
        (service, detected[service.ref].versions)
        for service in question.snapshot.services
        if detected[service.ref].code not in LEFT_ALONE
    ]
    observed = observe(find_targets(asked, hosts, knowledge.led_to, question.facts), knowledge)
    paths: dict[ObjectRef, list[Code]] = {service.ref: [] for service, _ in asked}
    findings = []
    for target, seen in observed:
        finding = path_finding(target.service, target.port.name, seen)
        paths[target.service.ref].append(finding.code)
        findings.append(finding)
    context = verifying_context(Path(question.config.hosts.file).parent)
    findings += [
        certificate_finding(target.host, target.service.ref.path, outcome)
        for target, outcome in observe_certificates(observed, context)
    ]
    measured = [seen.bypassed for _, seen in observed if seen.relayed or seen.bypassed]
    return (
        _load_balancers(question, detected, paths),
        findings,
        any(measured) if measured else None,
    )


def detections(snapshot: Snapshot, options: LoadBalancerOptions) -> dict[ObjectRef, Detection]:
    """Return what decides for each load balancer. Pure."""
    return {
        service.ref: detect(service, options, snapshot.node, snapshot.config_maps)
        for service in snapshot.services
    }


def _detected(question: Question) -> dict[ObjectRef, Detection]:
    return detections(question.snapshot, question.config.load_balancers)


def _load_balancers(
    question: Question,
    detected: dict[ObjectRef, Detection],
    paths: dict[ObjectRef, list[Code]] | None,
) -> list[Finding]:
    return [
        load_balancer_finding(
            LoadBalancerObservation(
                service=service,
                detected=detected[service.ref],
                paths=None if paths is None else tuple(paths.get(service.ref, ())),
                provider=provider_of(service, question.snapshot.node),
                node_addresses=_node_addresses(question),
                by_fleet=_by_fleet(question, detected),
            ),
            question.cluster.version,
            question.cluster.policy_api,
        )
        for service in sorted(question.snapshot.services, key=lambda service: service.ref)
    ]


def _node_addresses(question: Question) -> frozenset[IPAddress]:
    """Return the addresses of all nodes that are known."""
    node, nodes = question.snapshot.node, question.cluster.nodes
    own = (*node.addresses, *node.external_addresses) if node else ()
    return frozenset((*own, *nodes.addresses, *nodes.external) if nodes else own)


def _by_fleet(question: Question, detected: Mapping[ObjectRef, Detection]) -> bool:
    """Whether all agents are in sync, and serve no fewer load balancers than send the header."""
    fleet = question.fleet
    sending = sum(detection.proxy for detection in detected.values())
    return fleet is not None and fleet.finding.code is Code.FleetInSync and fleet.serves >= sending


def _dnat(actual: ActualState) -> DnatState | None:
    try:
        return actual.dnat.state()
    except ApplyError:
        return None


def _standing_relays(question: Question, dnat: DnatState | None) -> dict[Endpoint, Endpoint]:
    """Return the relays in use: by DNAT, or because their address is on this node."""
    standing = {address.address for address in question.facts.addresses if address.ours}
    found = {
        match: relay
        for match, relay in relays_of(question.desired, question.config).items()
        if relay.address in standing
    }
    if dnat is not None:
        found |= {redirect.match: redirect.to for redirect in dnat.rules.redirects}
    return found


def _node(
    question: Question,
    rules: KubeProxy,
    dnat: DnatState | None,
    names: Sequence[NameObservation],
    *,
    bypassed: bool | None,
) -> list[Finding]:
    comparison = compare(question.desired, question.actual)
    hosts_file = Path(question.config.hosts.file)
    state = AgentObservation(
        comparison=comparison,
        standing=read_listener_status(question.desired, question.actual),
        dnat=dnat,
        rules=rules,
        addresses=any(address.ours for address in question.facts.addresses),
    )
    environment = read_environment(hosts_file)
    answers = [name.by_coredns for name in names if name.by_coredns is not None]
    signs = None if environment.socket_balancer is None else bool(environment.socket_balancer)
    pods = PodsObservation(
        redirected=bool(question.desired.dnat.pods if dnat is None or dnat.unreadable else dnat.rules.pods),
        bypassed=signs if bypassed is None else bypassed,
        by_kube_proxy=bool(rules.modes) and not environment.cni,
        by_coredns=any(answers) if answers else None,
        said=question.config.coredns.serves_pods,
    )
    return [
        *wiring_findings(
            rules,
            environment,
            mounted=is_mount_point(hosts_file),
            hosts_written=bool(comparison.written_names),
            bypassed=bypassed,
            unused=_unused(question.desired, hosts_written=bool(comparison.written_names)),
        ),
        *agent_findings(state),
        *([pods_finding(pods)] if state.addresses else []),
        *hosts_line_findings(question.facts.user_names, right_addresses(question.desired), str(hosts_file)),
    ]


def _unused(desired: Desired, *, hosts_written: bool) -> frozenset[str]:
    """Return the checks of parts of the node that no fix uses here: it is not needed, or is switched off."""
    used = {
        "cni": any(decision.verdict is Verdict.SERVED for decision in desired.load_balancers),
        "packet-filter": bool(desired.dnat),
        "hosts-file": bool(desired.hosts) or hosts_written,
        "name-order": bool(desired.hosts) or hosts_written,
    }
    return frozenset(check for check, is_used in used.items() if not is_used)


_RUNTIME_SETTINGS = "containerd/certs.d"


def observe_names(
    question: Question, hosts: Collection[str], led_to: dict[str, tuple[IPAddress, ...]]
) -> list[NameObservation]:
    """Look up each of `hosts` in three ways; `led_to` has the answers of this host's resolver."""
    # dnspython costs 0.07 s to import: only if hostnames are looked up.
    from nodeagent.sources.dns import (  # noqa: PLC0415
        Resolver,
        Upstreams,
        find_upstreams,
    )

    upstream = ask_each(hosts, Resolver(lambda: find_upstreams(question.config.hosts)).ask)
    dns = question.cluster.dns
    cluster: dict[str, DnsReply] = {}
    if dns is not None:
        cluster = ask_each(hosts, Resolver(lambda: Upstreams((Endpoint(dns, DNS_PORT),))).ask)
    proxied = {ref for ref, detection in _detected(question).items() if detection.proxy}
    decisions = question.desired.load_balancers
    addresses = [address for decision in decisions for address in decision.addresses]
    return [
        NameObservation(
            name=name,
            host=led_to.get(name, ()),
            upstream=reply,
            cluster=cluster.get(name),
            cluster_why=f"not asked: {question.cluster.reason('dns')}",
            decision=(decision := _decision(question.desired, name)),
            behind_proxy=decision is not None and decision.load_balancer in proxied,
            load_balancers=frozenset((*addresses, *_published(led_to, question))),
            relays=frozenset(one for decision in decisions for one in decision.relay_addresses),
        )
        for name, reply in upstream.items()
    ]


def _decision(desired: Desired, name: str) -> NameDecision | None:
    """Return the plan's decision on the hostname. Of several claims, a served one counts."""
    found = [decision for decision in desired.names if decision.name == name]
    return min(found, key=lambda decision: decision.verdict is not Verdict.SERVED, default=None)


def _published(led_to: dict[str, tuple[IPAddress, ...]], question: Question) -> list[IPAddress]:
    return [
        address for name in published_names(question.snapshot.services) for address in led_to.get(name, ())
    ]


def examine_images(question: Question, balancers: Iterable[Finding], resolver: HostResolver) -> list[Finding]:
    """Look for registries behind the load balancers that `balancers` lists."""
    pods = question.cluster.pods
    if pods is None:
        seen = f"the pods of this node are not known: {question.cluster.reason('pods')}"
        return [Finding(Code.ImagesUnknown, "images", seen)]
    by_path = {finding.subject: finding.code for finding in balancers}
    behind = {
        name.name: by_path[name.load_balancer.path]
        for name in question.desired.names
        if name.load_balancer is not None
    }
    addresses = {
        address: by_path[decision.load_balancer.path]
        for decision in question.desired.load_balancers
        for address in (*decision.addresses, *decision.relay_addresses)
    }
    registries = {registry_of(image).partition(":")[0] for pod in pods for image in pod.images}
    for registry, led_to in ask_each(registries - behind.keys(), resolver.resolve).items():
        for address in led_to:
            if address in addresses:
                behind[registry] = addresses[address]
    return image_findings(pods, behind)


def rehearse_pull(question: Question) -> list[Finding]:
    """Test the requested pull, if there is one."""
    image = question.image
    if image is None:
        return []
    hosts_file = Path(question.config.hosts.file)
    settings = hosts_file.parent / _RUNTIME_SETTINGS / image.authority / "hosts.toml"
    return [
        pull_finding(
            str(image),
            rehearse(image, HostResolver(hosts_file).resolve, verifying_context(hosts_file.parent)),
            str(settings) if settings.exists() else "",
        )
    ]
