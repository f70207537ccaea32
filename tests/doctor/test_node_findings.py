"""What handles Services and names on a node, judged on values."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest

from nodeagent.doctor.findings import CheckStatus, Code
from nodeagent.doctor.node_findings import (
    NameObservation,
    data_plane_finding,
    hosts_line_findings,
    name_finding,
    name_order_findings,
    pods_finding,
)
from nodeagent.model.facts import DnsOutcome, DnsReply, UserHostsLine
from nodeagent.sources.node import Environment, KubeProxy
from tests.cases import cases_of
from tests.plan.made_up import FACTS, config, desired, ingress, service

_CASES: dict[str, Any] = cases_of(__file__, "verdicts.yaml")
BALANCER, RELAY, ELSEWHERE = map(ip_address, ("192.0.2.1", "169.254.66.7", "198.51.100.9"))
_AT = {"balancer": BALANCER, "relay": RELAY, "elsewhere": ELSEWHERE}
_SAID = {name: DnsReply(DnsOutcome.ADDRESSES, (address,)) for name, address in _AT.items()}
_SAID["nothing"] = DnsReply(DnsOutcome.NXDOMAIN)
_SAID["silent"] = DnsReply(DnsOutcome.TIMEOUT, trouble="no answer in time")


@pytest.mark.parametrize(("host", "upstream", "behind_proxy", "code"), _CASES["names"])
def test_where_a_name_leads(host: list[str], upstream: str, *, behind_proxy: bool, code: str) -> None:
    found, coredns = tuple(_AT[each] for each in host), _SAID["balancer"]
    known = NameObservation(
        "site.example.com", found, _SAID[upstream], coredns, "", frozenset({BALANCER}), frozenset({RELAY})
    )
    assert name_finding(replace(known, behind_proxy=behind_proxy)).code == Code[code]


def test_a_line_that_leads_a_load_balancers_hostname_elsewhere_is_named_and_no_other() -> None:
    lines = {
        "right.example.com": UserHostsLine(3, "192.0.2.1"),
        "stale.example.com": UserHostsLine(4, "9.9.9.9"),
        "old.example.com": UserHostsLine(5, "10.96.0.9", by_hairpin_proxy=True),
        "else.example.com": UserHostsLine(6, "9.9.9.9"),
        # What nodeagent rejects, or is configured to leave alone, says nothing about the user's lines.
        "localhost": UserHostsLine(1, "127.0.0.1"),
        "out.example.com": UserHostsLine(7, "9.9.9.9"),
    }
    options = config("hosts: {allow: [example.com], exclude: [out.example.com]}")
    claimed = ingress(*(name for name in lines if name != "else.example.com"))
    planned = desired(service(), claimed, facts=replace(FACTS, user_names=lines), options=options)
    found = hosts_line_findings(planned, lines, "/etc/hosts")
    assert {(one.code, one.subject) for one in found} == {
        (Code.StaleHostsLine, "/etc/hosts:4"),
        (Code.HairpinProxyLine, "/etc/hosts:5"),
    }


@pytest.mark.parametrize(("order", "codes"), _CASES["orders"])
def test_hosts_lines_need_files_before_dns(order: list[str], codes: list[str]) -> None:
    assert [finding.code for finding in name_order_findings(tuple(order))] == [Code[each] for each in codes]


UNREAD = KubeProxy(unreadable="root alone")
NODE = Environment(cni=(), socket_balancer="", name_order=())
CILIUM = Environment((("Cilium", "/sys/class/net/cilium_host"),), "/sys/fs/bpf/cilium/socketlb", ())
_RULES = {"nftables": KubeProxy((("nftables", "table kube-proxy in nftables"),)), "none": KubeProxy()}
_RULES["unread"] = UNREAD
_NODES = {"plain": NODE, "unseen": replace(NODE, socket_balancer=None), "cilium": CILIUM}


@pytest.mark.parametrize(("rules", "node", "bypassed", "hosts_written", "code"), _CASES["data_plane"])
def test_what_handles_services(
    rules: str, node: str, *, bypassed: bool | None, hosts_written: bool, code: str
) -> None:
    finding = data_plane_finding(_RULES[rules], _NODES[node], bypassed=bypassed, hosts_written=hosts_written)
    assert finding.code == Code[code]
    assert bool(finding.remedy) is (code == "SocketBalancer" or (rules == "unread" and bypassed is None))


def test_who_it_is_and_by_what_sign_is_told() -> None:
    finding = data_plane_finding(KubeProxy(), CILIUM, bypassed=None, hosts_written=False)
    assert finding.seen.startswith("Services are handled by Cilium;")
    assert "Cilium: /sys/class/net/cilium_host" in finding.evidence
    unread = data_plane_finding(UNREAD, NODE, bypassed=None, hosts_written=False)
    assert "kube-proxy's rules: root alone" in unread.evidence


_SERVED: dict[str, Any] = _CASES["served"]


@pytest.mark.parametrize(("differing", "code"), _CASES["pods"])
def test_who_serves_pods(differing: dict[str, Any], code: str) -> None:
    finding = pods_finding(**_SERVED | differing)
    assert finding.code == Code[code]
    assert bool(finding.remedy) is (code != "PodsServed")


def test_pods_without_help_affect_the_node_and_the_fix_is_named() -> None:
    finding = pods_finding(**_SERVED | {"redirected": False, "by_coredns": False})
    assert finding.status is CheckStatus.AFFECTED
    assert "CoreDNS does not answer with the relay's address" in finding.seen
    assert "dnat.podCIDRs" in finding.remedy[0]
