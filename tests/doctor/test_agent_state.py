"""What nodeagent keeps on the node, and what serves pods, judged on values."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest

from nodeagent.agent.convergence import Comparison
from nodeagent.components.dnat.state import DnatState
from nodeagent.components.node import ListenerStatus
from nodeagent.doctor.agent_state import AgentObservation, agent_findings, overtaking, pods_finding
from nodeagent.doctor.findings import CheckVerdict, Code, Finding
from nodeagent.doctor.node_wiring import hosts_line_findings
from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import DnatRules, Redirect
from nodeagent.model.facts import UserHostsLine
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.node.service_proxy import BaseChain, KubeProxy

RELAY = Endpoint(ip_address("169.254.66.7"), 443)
BALANCER = Endpoint(ip_address("192.0.2.1"), 443)
REDIRECT = Redirect(BALANCER, RELAY, ObjectRef("Service", "ingress", "blue"))
IN_SYNC = Comparison({}, {}, "nftables")
OURS = BaseChain("inet", "nodeagent", "output", "output", -105)
THEIRS = BaseChain("ip", "kube-proxy", "nat-output", "output", -100)

SERVING = AgentObservation(
    comparison=IN_SYNC,
    standing={
        RELAY: ListenerStatus(str(RELAY), answers=True, redirected=(str(BALANCER),), backend="UP (fine)")
    },
    dnat=DnatState(DnatRules((REDIRECT,)), present=True),
    rules=KubeProxy(chains=(OURS, THEIRS)),
    addresses=True,
)


def _codes(findings: list[Finding]) -> set[Code]:
    return {finding.code for finding in findings}


def test_all_is_well() -> None:
    assert _codes(agent_findings(SERVING)) == {Code.AgentInSync, Code.RelayAnswers, Code.DnatFirst}


def test_nothing_of_it_exists() -> None:
    absent = replace(SERVING, dnat=DnatState(), addresses=False, standing={})
    assert _codes(agent_findings(absent)) == {Code.AgentAbsent}
    unread = replace(absent, comparison=replace(IN_SYNC, errors={"hosts": "no permission"}))
    (finding,) = agent_findings(unread)
    assert finding.code is Code.AgentUnreadable
    assert "Hosts file: no permission" in finding.evidence


def test_rules_that_root_alone_may_read_are_no_drift() -> None:
    comparison = replace(IN_SYNC, hidden={"dnat": "needs root", "relay": "not permitted"})
    hidden = replace(SERVING, dnat=DnatState(unreadable="needs root"), comparison=comparison)
    found = agent_findings(hidden)
    assert _codes(found) == {Code.AgentUnreadable, Code.RelayAnswers, Code.DnatUnreadable}
    assert _codes(agent_findings(replace(SERVING, dnat=None))) >= {Code.DnatUnreadable}


def test_a_silent_listener_is_named() -> None:
    silent = replace(SERVING, standing={RELAY: ListenerStatus(str(RELAY), False, (), "DOWN (refused)")})  # noqa: FBT003 - what answers
    finding = next(one for one in agent_findings(silent) if one.code is Code.RelaySilent)
    assert "169.254.66.7:443: does not answer; its ingress controller: DOWN (refused)" in finding.evidence


def test_a_chain_that_translates_earlier_is_named() -> None:
    early = BaseChain("ip", "other", "grab", "output", -105)
    rules = KubeProxy(chains=(OURS, THEIRS, early))
    finding = next(
        one for one in agent_findings(replace(SERVING, rules=rules)) if one.code is Code.DnatOvertaken
    )
    assert finding.evidence == ("table ip other, chain grab: output at priority -105",)


def test_beside_legacy_iptables_only_what_runs_earlier_counts() -> None:
    assert overtaking(KubeProxy(chains=(THEIRS,)), "iptables") == []
    assert overtaking(KubeProxy(chains=(replace(THEIRS, priority=-101),)), "iptables")
    postrouting = replace(THEIRS, hook="postrouting", priority=-300)
    assert overtaking(KubeProxy(chains=(OURS, postrouting)), "nftables") == []


def test_lines_that_lead_to_the_right_address_or_elsewhere_are_clean() -> None:
    names = {"site.example.com": frozenset({"192.0.2.1", "169.254.66.7"})}
    right = {
        "site.example.com": UserHostsLine(3, "192.0.2.1"),
        "else.example.com": UserHostsLine(4, "9.9.9.9"),
    }
    assert _codes(hosts_line_findings(right, names, "/etc/hosts")) == {Code.HostsLinesClean}


_SERVED: dict[str, Any] = {
    "redirected": True,
    "bypassed": False,
    "by_kube_proxy": True,
    "by_coredns": None,
    "said": False,
}


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (_SERVED, Code.PodsByDnat),
        (_SERVED | {"redirected": False}, Code.PodsNotServed),
        (_SERVED | {"bypassed": True}, Code.PodsNotServed),
        (_SERVED | {"bypassed": None}, Code.PodsUnclear),
        (_SERVED | {"by_kube_proxy": False}, Code.PodsUnclear),
        (_SERVED | {"by_kube_proxy": False, "by_coredns": True}, Code.PodsByCoreDns),
        (_SERVED | {"bypassed": True, "by_coredns": True}, Code.PodsByCoreDns),
        (_SERVED | {"bypassed": True, "by_coredns": False, "said": True}, Code.PodsNotServed),
        (_SERVED | {"redirected": False, "said": True}, Code.PodsLeftToCoreDns),
    ],
)
def test_who_serves_pods(seen: dict[str, Any], code: Code) -> None:
    finding = pods_finding(**seen)
    assert finding.code is code
    assert bool(finding.remedy) is (code in {Code.PodsNotServed, Code.PodsUnclear})


def test_pods_without_help_affect_the_node_and_the_fix_is_named() -> None:
    finding = pods_finding(**_SERVED | {"redirected": False, "by_coredns": False})
    assert finding.verdict is CheckVerdict.AFFECTED
    assert "CoreDNS does not answer with the relay's address" in finding.seen
    assert "overlay cilium" in finding.remedy[0]
