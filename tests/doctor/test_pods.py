"""What serves pods: DNAT, CoreDNS, or nothing; and that plan says so if nothing does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodeagent.doctor.agent_state import PodsObservation, pods_finding
from nodeagent.doctor.findings import CheckVerdict, Code

_SERVED = PodsObservation(redirected=True, socket_balancer=False, by_coredns=None, said=False)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (_SERVED, Code.PodsByDnat),
        (replace(_SERVED, redirected=False), Code.PodsNotServed),
        (replace(_SERVED, socket_balancer=True), Code.PodsNotServed),
        (replace(_SERVED, socket_balancer=True, by_coredns=True), Code.PodsByCoreDns),
        (replace(_SERVED, socket_balancer=True, by_coredns=False, said=True), Code.PodsNotServed),
        (replace(_SERVED, redirected=False, said=True), Code.PodsLeftToCoreDns),
    ],
)
def test_who_serves_pods(seen: PodsObservation, code: Code) -> None:
    finding = pods_finding(seen)
    assert finding.code is code
    assert bool(finding.remedy) is (code is Code.PodsNotServed)


def test_pods_without_help_are_a_warning_that_names_the_overlay() -> None:
    finding = pods_finding(replace(_SERVED, redirected=False, by_coredns=False))
    assert finding.verdict is CheckVerdict.WARNING
    assert "CoreDNS does not answer with the relay's address" in finding.seen
    assert "overlay cilium" in finding.remedy[0]
