"""What nodeagent keeps on this node, whether it is in order, and what serves the pods. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.agent.convergence import Comparison
from nodeagent.components.component import TITLES
from nodeagent.components.dnat.state import DnatState
from nodeagent.components.node import ListenerStatus
from nodeagent.doctor.findings import Code, Finding
from nodeagent.model.addresses import Endpoint
from nodeagent.sources.node.service_proxy import KubeProxy

_OWN_TABLE = "nodeagent"
_HOOKS = ("output", "prerouting")
_IPTABLES_PRIORITY = -100


@dataclass(frozen=True, slots=True)
class AgentObservation:
    """What was read of nodeagent's components.

    Attributes:
        comparison: what would change.
        standing: each listener of the desired state.
        dnat: the actual DNAT rules; None if they could not be read.
        rules: the kernel's other rules.
        addresses: whether one of nodeagent's relay addresses exists.
    """

    comparison: Comparison
    standing: Mapping[Endpoint, ListenerStatus]
    dnat: DnatState | None
    rules: KubeProxy
    addresses: bool

    @property
    def present(self) -> bool:
        """Whether anything of nodeagent's is on the node."""
        redirects = self.dnat is not None and self.dnat.present
        return self.addresses or redirects or bool(self.comparison.written_names)


def agent_findings(seen: AgentObservation) -> list[Finding]:
    """Return a finding for each thing that nodeagent keeps; a single one if it keeps nothing."""
    if not seen.present:
        return [_absent(seen)]
    return [_agent(seen), *_relay(seen.standing.values()), *_dnat(seen)]


def _absent(seen: AgentObservation) -> Finding:
    if seen.comparison.errors:
        errors = tuple(f"{TITLES[component]}: {text}" for component, text in seen.comparison.errors.items())
        return Finding(Code.AgentUnreadable, "nodeagent", "its actual state can't be read", errors)
    what = "would serve this node" if seen.comparison.pending else "would have nothing to do"
    return Finding(Code.AgentAbsent, "nodeagent", f"nothing of it exists on this node; it {what}")


def _agent(seen: AgentObservation) -> Finding:
    comparison = seen.comparison.of_what_was_read()
    pending = [TITLES[component] for component in comparison.pending]
    errors = tuple(f"{TITLES[component]}: {text}" for component, text in comparison.errors.items())
    if pending:
        running = "check that the agent is running: it repairs drift within milliseconds"
        remedy = (running, "$ nodeagent plan", "$ nodeagent apply")
        words = f"not in the desired state: {', '.join(pending)}"
        return Finding(Code.AgentDrifted, "nodeagent", words, errors, remedy)
    if errors:
        return Finding(Code.AgentUnreadable, "nodeagent", "in sync as far as it can be read", errors)
    words = "in sync: addresses, relay, DNAT and hosts file are in the desired state"
    return Finding(Code.AgentInSync, "nodeagent", words)


def _relay(standing: Iterable[ListenerStatus]) -> list[Finding]:
    found = list(standing)
    if not found:
        return []
    silent = [one.relay for one in found if not one.answers]
    evidence = tuple(
        f"{one.relay}: {'answers' if one.answers else 'does not answer'}"
        # HAProxy's own words for a server that does not serve; "UP 1/3 (...)" is one that does.
        + (
            f"; its ingress controller: {'up' if one.backend.startswith('UP') else one.backend}"
            if one.backend
            else ""
        )
        for one in found
    )
    if not silent:
        return [Finding(Code.RelayAnswers, "relay", f"{len(found)} listeners answer", evidence)]
    words = f"{len(silent)} of {len(found)} listeners do not answer"
    remedy = ("restart HAProxy: the relay container of the DaemonSet's pod, or", "$ nodeagent apply")
    return [Finding(Code.RelaySilent, "relay", words, evidence, remedy)]


def _dnat(seen: AgentObservation) -> list[Finding]:
    if seen.dnat is None or seen.dnat.unreadable:
        why = seen.dnat.unreadable if seen.dnat else "the rules can't be read"
        return [Finding(Code.DnatUnreadable, "DNAT", why)]
    redirects = seen.dnat.rules.redirects
    if not redirects:
        return []
    subject = f"DNAT ({seen.comparison.dnat_backend})"
    ahead = overtaking(seen.rules, seen.comparison.dnat_backend)
    if ahead:
        words = f"{len(redirects)} entries, but other rules translate the address first"
        remedy = "the first chain that translates wins: make that table run later, or rely on hosts lines"
        return [Finding(Code.DnatOvertaken, subject, words, tuple(ahead), (remedy,))]
    return [Finding(Code.DnatFirst, subject, f"{len(redirects)} active entries, before kube-proxy's rules")]


def overtaking(rules: KubeProxy, backend: str) -> list[str]:
    """Return the base chains of nftables that translate before nodeagent's.

    Its own run at a priority that no other should have: another chain at that priority counts, since their
    order is unknown. Legacy iptables runs at -100 (NF_IP_PRI_NAT_DST), as kube-proxy's nftables mode does:
    there, only chains that run earlier count, and the DNAT backend keeps the position among iptables' own
    rules.
    """
    own = {chain.hook: chain.priority for chain in rules.chains if chain.table == _OWN_TABLE}
    if backend == "iptables":
        own = dict.fromkeys(_HOOKS, _IPTABLES_PRIORITY - 1)
    return [
        f"table {chain.family} {chain.table}, chain {chain.name}: {chain.hook} at priority {chain.priority}"
        for chain in rules.chains
        if chain.table != _OWN_TABLE and chain.hook in own and chain.priority <= own[chain.hook]
    ]


_PODS = "pods"


def pods_finding(
    *, redirected: bool, bypassed: bool | None, by_kube_proxy: bool, by_coredns: bool | None, said: bool
) -> Finding:
    """Return the finding for a node on which nodeagent serves a load balancer.

    Args:
        redirected: whether DNAT for pods is active on this node.
        bypassed: whether something rewrites `connect()` before DNAT sees it; None if unknown.
        by_kube_proxy: whether kube-proxy, whose rules DNAT precedes, and nothing else handles Services here.
        by_coredns: whether CoreDNS answers a hostname with the relay's address; None if it could not be
            queried.
        said: whether the configuration says that CoreDNS serves pods (`coredns.servesPods`).
    """
    if redirected and bypassed is False and by_kube_proxy:
        return Finding(Code.PodsByDnat, _PODS, "served by DNAT, like the node itself")
    if by_coredns:
        return Finding(Code.PodsByCoreDns, _PODS, "served by CoreDNS: it answers with the relay's address")
    if by_coredns is None and said:
        words = "left to CoreDNS, as coredns.servesPods says; CoreDNS could not be queried from here"
        return Finding(Code.PodsLeftToCoreDns, _PODS, words)
    and_coredns = "" if by_coredns is None else ", and CoreDNS does not answer with the relay's address"
    if redirected and not bypassed:
        return Finding(
            Code.PodsUnclear,
            _PODS,
            "there is DNAT for them, but another data plane than kube-proxy's may handle their connections "
            f"before it{and_coredns}",
            remedy=(
                "connect from a pod of this node to a hostname behind the load balancer:",
                "$ kubectl run test --rm -it --restart=Never --image=curlimages/curl -- curl -v http://HOSTNAME/",
                "if that is rejected, use the overlay cilium: its controllers let CoreDNS serve pods",
            ),
        )
    why = "DNAT does not see their connections" if redirected else "there is no DNAT for them"
    return Finding(
        Code.PodsNotServed,
        _PODS,
        f"not served, including cert-manager's: {why}{and_coredns}",
        remedy=(
            "let CoreDNS serve them: the overlay cilium contains the controllers for it (docs/coredns.md)",
            "or, without nodeagent: use ipMode: Proxy, or a hostname instead of the address",
        ),
    )
