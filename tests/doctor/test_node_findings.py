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
from tests.plan.made_up import FACTS, config, desired, ingress, service

BALANCER, RELAY, ELSEWHERE = map(ip_address, ("192.0.2.1", "169.254.66.7", "198.51.100.9"))
NOTHING = DnsReply(DnsOutcome.NXDOMAIN)
SILENT = DnsReply(DnsOutcome.TIMEOUT, trouble="no answer in time")
THERE = DnsReply(DnsOutcome.ADDRESSES, (BALANCER,))
FOUND = NameObservation(
    "site.example.com", (BALANCER,), THERE, THERE, "", frozenset({BALANCER}), frozenset({RELAY})
)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (FOUND, Code.NameAtLoadBalancer),
        (replace(FOUND, upstream=SILENT), Code.NameAtLoadBalancer),
        (replace(FOUND, host=(RELAY,)), Code.NameAtRelay),
        (replace(FOUND, host=(ELSEWHERE,)), Code.NameDiffers),
        (
            replace(FOUND, host=(ELSEWHERE,), upstream=DnsReply(DnsOutcome.ADDRESSES, (ELSEWHERE,))),
            Code.NameElsewhere,
        ),
        (replace(FOUND, host=(ELSEWHERE,), upstream=SILENT), Code.NameElsewhere),
        (replace(FOUND, host=(BALANCER, ELSEWHERE), upstream=NOTHING), Code.NameDiffers),
        (replace(FOUND, host=()), Code.NameDiffers),
        (replace(FOUND, host=(), upstream=NOTHING), Code.NameElsewhere),
        (replace(FOUND, host=(), upstream=NOTHING, behind_proxy=True), Code.NameUnknown),
        (replace(FOUND, host=(), upstream=SILENT), Code.NameUnclear),
    ],
)
def test_where_a_name_leads(seen: NameObservation, code: Code) -> None:
    assert name_finding(seen).code == code


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


@pytest.mark.parametrize(
    ("order", "codes"),
    [
        (("files", "dns"), []),
        (("mymachines", "resolve", "files"), []),
        ((), []),
        (("dns", "files"), [Code.FilesNotFirst]),
        (("dns",), [Code.FilesNotFirst]),
    ],
)
def test_hosts_lines_need_files_before_dns(order: tuple[str, ...], codes: list[Code]) -> None:
    assert [finding.code for finding in name_order_findings(order)] == codes


RULES = KubeProxy(modes=(("nftables", "table kube-proxy in nftables"),))
UNREAD = KubeProxy(unreadable="root alone")
NODE = Environment(cni=(), socket_balancer="", name_order=())
UNSEEN = replace(NODE, socket_balancer=None)
CILIUM = Environment((("Cilium", "/sys/class/net/cilium_host"),), "/sys/fs/bpf/cilium/socketlb", ())


@pytest.mark.parametrize(
    ("rules", "node", "bypassed", "hosts_written", "code"),
    [
        (RULES, NODE, None, False, Code.DataPlaneKnown),
        (RULES, UNSEEN, None, False, Code.DataPlaneUnclear),
        (KubeProxy(), NODE, None, False, Code.DataPlaneUnclear),
        (UNREAD, NODE, None, False, Code.DataPlaneUnclear),
        (KubeProxy(), CILIUM, None, False, Code.SocketBalancer),
        (KubeProxy(), CILIUM, None, True, Code.DataPlaneKnown),
        # What was measured counts more than a sign.
        *((RULES, node, True, False, Code.SocketBalancer) for node in (NODE, UNSEEN, CILIUM)),
        *((RULES, node, False, False, Code.DataPlaneKnown) for node in (NODE, UNSEEN, CILIUM)),
        (UNREAD, UNSEEN, False, False, Code.DataPlaneKnown),
    ],
)
def test_what_handles_services(
    rules: KubeProxy,
    node: Environment,
    bypassed: bool | None,  # noqa: FBT001 - three answers
    hosts_written: bool,  # noqa: FBT001 - one more observation
    code: Code,
) -> None:
    finding = data_plane_finding(rules, node, bypassed=bypassed, hosts_written=hosts_written)
    assert finding.code == code
    assert bool(finding.remedy) is (code is Code.SocketBalancer or (rules is UNREAD and bypassed is None))


def test_who_it_is_and_by_what_sign_is_told() -> None:
    finding = data_plane_finding(KubeProxy(), CILIUM, bypassed=None, hosts_written=False)
    assert finding.seen.startswith("Services are handled by Cilium;")
    assert "Cilium: /sys/class/net/cilium_host" in finding.evidence
    unread = data_plane_finding(UNREAD, NODE, bypassed=None, hosts_written=False)
    assert "kube-proxy's rules: root alone" in unread.evidence


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
        (_SERVED, Code.PodsServed),
        (_SERVED | {"redirected": False}, Code.PodsNotServed),
        (_SERVED | {"bypassed": True}, Code.PodsNotServed),
        (_SERVED | {"bypassed": None}, Code.PodsUnclear),
        (_SERVED | {"by_kube_proxy": False}, Code.PodsUnclear),
        (_SERVED | {"by_kube_proxy": False, "by_coredns": True}, Code.PodsServed),
        (_SERVED | {"bypassed": True, "by_coredns": True}, Code.PodsServed),
        (_SERVED | {"bypassed": True, "by_coredns": False, "said": True}, Code.PodsNotServed),
        # It was said, and not seen.
        (_SERVED | {"redirected": False, "said": True}, Code.PodsUnclear),
    ],
)
def test_who_serves_pods(seen: dict[str, Any], code: Code) -> None:
    finding = pods_finding(**seen)
    assert finding.code == code
    assert bool(finding.remedy) is (code is not Code.PodsServed)


def test_pods_without_help_affect_the_node_and_the_fix_is_named() -> None:
    finding = pods_finding(**_SERVED | {"redirected": False, "by_coredns": False})
    assert finding.status is CheckStatus.AFFECTED
    assert "CoreDNS does not answer with the relay's address" in finding.seen
    assert "overlay cilium" in finding.remedy[0]
