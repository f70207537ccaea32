from dataclasses import replace
from typing import Any

import pytest

from nodeagent.doctor.findings import CheckStatus, Code
from nodeagent.doctor.node_findings import data_plane_finding, pods_finding
from nodeagent.sources.node import Environment, KubeProxy

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
