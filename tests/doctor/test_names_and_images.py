"""Names asked three ways, images behind load balancers, and certificates: judged on values."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.doctor.findings import Code
from nodeagent.doctor.names import (
    NameObservation,
    certificate_finding,
    name_finding,
    registry_of,
)
from nodeagent.model.facts import DnsOutcome, DnsReply
from nodeagent.sources.probes.connection_tests import CertificateOutcome, Trust

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
        (replace(FOUND, host=(), upstream=NOTHING), Code.NameNowhere),
        (replace(FOUND, host=(), upstream=NOTHING, behind_proxy=True), Code.NameUnknown),
        (replace(FOUND, host=(), upstream=SILENT), Code.NameUnclear),
    ],
)
def test_where_a_name_leads(seen: NameObservation, code: Code) -> None:
    assert name_finding(seen).code is code


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("nginx", "docker.io"),
        ("library/nginx:1", "docker.io"),
        ("registry.example.com/a/b@sha256:00", "registry.example.com"),
        ("registry:5000/a", "registry"),
        ("localhost/a", "localhost"),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str) -> None:
    assert registry_of(image) == registry


@pytest.mark.parametrize(
    ("trust", "code"),
    [
        (Trust.VALID, Code.CertificateValid),
        (Trust.EXPIRED, Code.CertificateExpired),
        (Trust.FOREIGN_AUTHORITY, Code.CertificateForeign),
        (Trust.WRONG_NAME, Code.CertificateWrongName),
        (Trust.UNKNOWN, Code.CertificateUnknown),
    ],
)
def test_a_certificate(trust: Trust, code: Code) -> None:
    finding = certificate_finding("site.example.com", "ingress/blue", CertificateOutcome(trust, "its words"))
    assert (finding.code, finding.seen) == (code, "its words")
    assert bool(finding.remedy) is (code.verdict == "warning")
