"""What serves pods: DNAT, CoreDNS, or nothing; and that plan says so if nothing does."""

from typing import Any

import pytest

from nodeagent.doctor.agent_state import pods_finding
from nodeagent.doctor.findings import CheckVerdict, Code

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
