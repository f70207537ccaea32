from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.doctor.findings import Code
from nodeagent.doctor.node_findings import (
    NameObservation,
    hosts_line_findings,
    name_finding,
    name_order_findings,
)
from nodeagent.model.facts import DnsOutcome, DnsReply, UserHostsLine
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
