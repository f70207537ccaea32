"""What handles Services on this node, whether its pods are served, and where each hostname leads. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeagent.doctor.findings import Code, Finding
from nodeagent.model.addresses import IPAddress
from nodeagent.model.decisions import NameDecision
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsReply, UserHostsLine
from nodeagent.sources.node import Environment, KubeProxy

_DATA_PLANE = "data plane"
_PODS = "pods"
_TRY_FROM_A_POD = (
    "connect from a pod of this node to a hostname behind the load balancer:",
    "$ kubectl run test --rm -it --restart=Never --image=curlimages/curl -- curl -v http://HOSTNAME/",
    "if that is rejected, use the cilium overlay: its controllers let CoreDNS serve pods",
)


def data_plane_finding(
    rules: KubeProxy, environment: Environment, *, bypassed: bool | None, hosts_written: bool
) -> Finding:
    """Return what handles Services here, and whether DNAT sees this node's connections.

    `bypassed`: whether connections pass by DNAT to the relay; None if that was not measured.
    """
    evidence = [*(text for _, text in rules.modes), *(f"{name}: {sign}" for name, sign in environment.cni)]
    if rules.unreadable:
        evidence.append(f"kube-proxy's rules: {rules.unreadable}")
    handled = _handled_by(rules, environment)
    if environment.socket_balancer:
        evidence.append(f"socket load balancer: {environment.socket_balancer}")
    if bypassed is False:
        seen = f"{handled}; this node's connections arrive at the relay by DNAT"
        return Finding.of(Code.DataPlaneKnown, _DATA_PLANE, seen, evidence)
    if bypassed or environment.socket_balancer:
        seen = f"{handled}; connections are rewritten before the packet filter sees them: DNAT has no effect"
        if hosts_written:
            seen += ", hosts lines serve the node"
            return Finding.of(Code.DataPlaneKnown, _DATA_PLANE, seen, evidence)
        seen += ", only hosts lines can serve the node"
        remedy = ["use nodeagent's cilium overlay (docs/install.md), or ipMode: Proxy"]
        return Finding.of(Code.SocketBalancer, _DATA_PLANE, seen, evidence, remedy)
    if rules.modes and environment.socket_balancer is not None:
        return Finding.of(Code.DataPlaneKnown, _DATA_PLANE, handled, evidence)
    if environment.socket_balancer is None:
        handled += "; from here, nothing shows whether connect() is rewritten before the packet filter"
        evidence.append("/sys/fs/bpf: not mounted here, only for root, or without a trace of this CNI")
    as_root = ["run nodeagent doctor as root on the node"] if rules.unreadable else []
    return Finding.of(Code.DataPlaneUnclear, _DATA_PLANE, handled, evidence, as_root)


def _handled_by(rules: KubeProxy, environment: Environment) -> str:
    if rules.modes:
        return f"kube-proxy, mode {', '.join(dict.fromkeys(mode for mode, _ in rules.modes))}"
    if environment.cni:
        return f"Services are handled by {', '.join(name for name, _ in environment.cni)}"
    if rules.unreadable:
        return "kube-proxy's rules could not be read"
    return "no rules of kube-proxy, and no known substitute"


def pods_finding(
    *, redirected: bool, bypassed: bool | None, by_kube_proxy: bool, by_coredns: bool | None, said: bool
) -> Finding:
    """Return the finding for a node on which nodeagent serves a load balancer; None is unknown.

    `redirected`: by DNAT; `bypassed`: something rewrites `connect()` before it. `by_kube_proxy`: kube-proxy,
    whose rules DNAT precedes, and nothing else handles Services here. `by_coredns`: CoreDNS answers with the
    relay's address; `said`: the configuration says so (`coredns.servesPods`).
    """
    if redirected and bypassed is False and by_kube_proxy:
        return Finding.of(Code.PodsServed, _PODS, "served by DNAT, like the node itself")
    if by_coredns:
        return Finding.of(Code.PodsServed, _PODS, "served by CoreDNS: it answers with the relay's address")
    and_coredns = "" if by_coredns is None else ", and CoreDNS does not answer with the relay's address"
    if by_coredns is None and said:
        words = "left to CoreDNS, as coredns.servesPods says; CoreDNS could not be queried from here"
        return Finding.of(Code.PodsUnclear, _PODS, words, remedy=_TRY_FROM_A_POD)
    if redirected and not bypassed:
        words = f"there is DNAT, but another data plane than kube-proxy's may come before it{and_coredns}"
        return Finding.of(Code.PodsUnclear, _PODS, words, remedy=_TRY_FROM_A_POD)
    why = "DNAT does not see their connections" if redirected else "there is no DNAT for them"
    words = f"not served, including cert-manager's: {why}{and_coredns}"
    remedy = (
        "if nodeagent status says so, set dnat.podCIDRs; else let CoreDNS serve them (docs/coredns.md)",
        "or, without nodeagent: use ipMode: Proxy, or a hostname instead of the address",
    )
    return Finding.of(Code.PodsNotServed, _PODS, words, remedy=remedy)


@dataclass(frozen=True, slots=True)
class NameObservation:
    """One hostname, looked up in three ways.

    Attributes:
        host: the answer of this host's resolver, hosts file included; `upstream`: of the server it queries.
        cluster: the answer of CoreDNS; None if it could not be queried.
        decision: what nodeagent decides on the hostname; None if no object claims it.
        behind_proxy: whether it is claimed for a load balancer that sends the PROXY header.
    """

    name: str
    host: tuple[IPAddress, ...]
    upstream: DnsReply
    cluster: DnsReply | None
    cluster_why: str
    load_balancers: frozenset[IPAddress]
    relays: frozenset[IPAddress]
    decision: NameDecision | None = None
    behind_proxy: bool = False

    @property
    def by_coredns(self) -> bool | None:
        """Whether CoreDNS answers with a relay's address; None if it could not be queried."""
        if self.cluster is None or not self.cluster.outcome.tells:
            return None
        return not self.relays.isdisjoint(self.cluster.addresses)


def name_finding(seen: NameObservation) -> Finding:
    """Judge where the hostname leads on this host."""
    code, words = _where(seen)
    decided = "no object of the cluster claims it"
    if seen.decision is not None:
        decided = f"{seen.decision.status.value}: {seen.decision.reason} [{seen.decision.code}]"
    evidence = (
        f"this host's resolver: {_addresses(seen.host)}",
        f"upstream DNS: {_reply(seen.upstream)}",
        f"CoreDNS: {_reply(seen.cluster) if seen.cluster is not None else seen.cluster_why}",
        f"nodeagent: {decided}",
    )
    remedies = {
        Code.NameUnknown: [f"create an address record for {seen.name}"],
        Code.NameDiffers: [f"look for {seen.name} in the hosts file, and check the order of name sources"],
    }
    return Finding.of(code, seen.name, words, evidence, remedies.get(code, ()))


def _where(seen: NameObservation) -> tuple[Code, str]:
    host = frozenset(seen.host)
    if host and host <= seen.relays:
        return Code.NameAtRelay, "leads to nodeagent's relay, through a hosts line"
    if host and host <= seen.load_balancers:
        return Code.NameAtLoadBalancer, "leads to the load balancer"
    if host and seen.upstream.outcome.tells and not host & frozenset(seen.upstream.addresses):
        return Code.NameDiffers, "this host's resolver returns other addresses than the upstream DNS"
    return (Code.NameElsewhere, "leads to no load balancer of this cluster") if host else _lost(seen)


def _lost(seen: NameObservation) -> tuple[Code, str]:
    """Judge a hostname for which this host's resolver has no address."""
    if seen.upstream.addresses:
        return Code.NameDiffers, "the upstream DNS has it, this host's resolver does not"
    if seen.upstream.outcome.tells and seen.behind_proxy:
        return Code.NameUnknown, "has no address"
    if seen.upstream.outcome.tells:
        return Code.NameElsewhere, "has no address, and belongs to no load balancer that sends the header"
    return Code.NameUnclear, "this host's resolver has no answer, and the upstream DNS could not be queried"


def _addresses(addresses: tuple[IPAddress, ...]) -> str:
    return ", ".join(map(str, addresses)) or "no address"


def _reply(reply: DnsReply) -> str:
    if reply.addresses:
        return _addresses(reply.addresses)
    return f"{reply.outcome.value}{f' ({reply.trouble})' if reply.trouble else ''}"


def hosts_line_findings(
    desired: Desired, user_names: Mapping[str, UserHostsLine], file: str
) -> list[Finding]:
    """Return the lines outside the managed block that lead a load balancer's hostname elsewhere."""
    right = {
        decision.load_balancer: {*map(str, (*decision.addresses, *decision.relay_addresses))}
        for decision in desired.load_balancers
    }
    findings = {}
    for decision in desired.names:
        if decision.load_balancer is None or decision.code not in {"UserLine", "HairpinProxyLine"}:
            continue
        line = user_names[decision.name]
        if line.by_hairpin_proxy:
            code = Code.HairpinProxyLine
            seen = f"hairpin-proxy's old line sends {decision.name} to {line.address}"
            remedy = ["let nodeagent replace it: adopt: true in the chart, or the component adopt"]
        elif line.address not in right[decision.load_balancer]:
            code = Code.StaleHostsLine
            seen = f"sends {decision.name} to {line.address}, which is not an address of its load balancer"
            remedy = [f"remove line {line.line_number} of {file}, unless it is there on purpose"]
        else:
            continue
        findings[decision.name] = Finding.of(code, f"{file}:{line.line_number}", seen, remedy=remedy)
    return list(findings.values())


def name_order_findings(order: Sequence[str]) -> list[Finding]:
    """Return what is wrong with the order of name sources (nsswitch.conf), if hosts lines are used."""
    first = next((source for source in order if source in {"files", "dns", "resolve"}), "")
    # nss-resolve reads the hosts file itself (systemd-resolved.service(8), ReadEtcHosts=).
    if first != "dns":
        return []
    seen = f"hosts: {' '.join(order)}: DNS answers before the hosts file, so hosts lines have no effect"
    remedy = ["move files before dns in the hosts line of /etc/nsswitch.conf, or rely on DNAT alone"]
    return [Finding.of(Code.FilesNotFirst, "nsswitch.conf", seen, remedy=remedy)]
