"""The plan as a whole: pod ranges, DNAT switched off, what could not be read."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from nodeagent.model.desired import Desired, DnatRules
from nodeagent.model.facts import Facts, InterfaceAddress
from nodeagent.model.objects import Snapshot, Unreadable
from nodeagent.plan.planner import plan
from tests.plan.made_up import FACTS, NODE, config, desired, hosts, ingress, relay_of, service


def test_an_empty_cluster_asks_for_nothing() -> None:
    """Nothing but the pods' ranges, which redirect nothing by themselves."""
    assert desired() == Desired(dnat=DnatRules(pods=NODE.pod_cidrs))
    assert desired(node=None) == Desired()


def test_without_dnat_the_hosts_lines_alone_serve_the_node() -> None:
    """The relay exists all the same."""
    planned = desired(service(), ingress("www.example.com"), options=config("dnat: {backend: none}"))
    assert (planned.dnat.redirects, planned.dnat.pods) == ((), ())
    assert planned.listeners
    # The guard is there all the same: the node's neighbours must not reach the relay.
    assert [str(network) for network in planned.dnat.guarded] == ["169.254.66.0/24"]
    assert planned.dnat.users == 250
    assert planned.dnat.admitted == NODE.pod_cidrs
    assert hosts(planned) == [f"{relay_of(planned)[4]} www.example.com"]


def test_pod_ranges_come_from_the_node_unless_they_are_configured() -> None:
    """Sorted, IPv4 first, none within another; a CNI may give its own."""
    given = ("fd00:244::/64", "10.244.9.0/24", "10.244.1.128/25", "10.244.1.0/24")
    node = replace(NODE, pod_cidrs=tuple(map(ip_network, given)))
    own = ["10.244.1.0/24", "10.244.9.0/24", "fd00:244::/64"]
    assert list(map(str, desired(node=node).dnat.pods)) == own
    configured = desired(node=node, options=config("dnat: {podCIDRs: [10.7.0.0/16]}"))
    assert configured.dnat.pods == (ip_network("10.7.0.0/16"),)


def test_a_listed_service_that_does_not_exist_is_named_with_the_nearest() -> None:
    options = config("loadBalancers: {services: [{namespace: ingress, name: bleu}]}")
    (remark,) = desired(service("blue"), service("database"), options=options).remarks
    assert remark == (
        "loadBalancers.services lists ingress/bleu: there is no such LoadBalancer Service; "
        "did you mean ingress/blue or ingress/database?"
    )
    (remark,) = desired(options=options).remarks
    assert remark.endswith("there is no such LoadBalancer Service")


@pytest.mark.parametrize("options", ["dnat: {pods: false}", "dnat: {backend: none}"])
def test_pods_that_dnat_is_not_to_serve_need_no_range(options: str) -> None:
    """That nothing serves them is said, unless CoreDNS does."""
    planned = desired(service(), node=None, options=config(options, proxies=("blue",)))
    assert planned.dnat.pods == ()
    (remark,) = planned.remarks
    assert "pods are not served" in remark
    assert "coredns.servesPods" in remark
    by_coredns = config(f"{options}\ncoredns: {{servesPods: true}}", proxies=("blue",))
    served = desired(service(), node=None, options=by_coredns)
    assert served.dnat.pods == ()
    (remark,) = served.remarks
    assert "the guard drops this node's pods' connections to the relay" in remark
    assert "set dnat.podCIDRs" in remark
    known = desired(service(), options=by_coredns)
    assert (known.dnat.pods, known.remarks) == ((), ())


def _on(interface: str, *addresses: str) -> Facts:
    return replace(
        FACTS, addresses=tuple(InterfaceAddress(ip_address(each), 32, interface) for each in addresses)
    )


CILIUM = _on("cilium_host", "10.0.1.17", "fe80::1", "fd00::17")
COREDNS_SERVES = "dnat: {backend: none}\ncoredns: {servesPods: true}"


@pytest.mark.parametrize(
    ("facts", "options", "said", "advice"),
    [
        (CILIUM, "", "cilium_host has 10.0.1.17, fd00::17", "kubectl get ciliumnodes"),
        (CILIUM, COREDNS_SERVES, "cilium_host has 10.0.1.17, fd00::17", "kubectl get ciliumnodes"),
        *(
            (_on(name, "192.168.1.64"), "", f"{name} has 192.168.1.64", "Calico's pools: kubectl get ippools")
            for name in ("tunl0", "vxlan.calico", "wireguard.cali")
        ),
    ],
)
def test_other_pod_ranges_of_a_network_plugin_than_the_known_are_said_once(
    facts: Facts, options: str, said: str, advice: str
) -> None:
    """Its blocks are not the Node's spec.podCIDRs: the guard would drop pods, and DNAT serve none."""
    planned = desired(service(), facts=facts, options=config(options, proxies=("blue",)))
    (remark,) = planned.remarks
    assert remark.startswith(f"{said}, outside of")
    assert "dnat.podCIDRs" in remark
    assert advice in remark


@pytest.mark.parametrize(
    ("facts", "options"),
    [
        (_on("tunl0", str(NODE.pod_cidrs[0][0])), ""),
        (_on("vxlan.calico", "192.168.104.64"), "dnat: {podCIDRs: [192.168.0.0/16]}"),
        (_on("cilium_host", str(NODE.pod_cidrs[0][1])), ""),
        (_on("cilium_host", "10.0.1.17"), "dnat: {podCIDRs: [10.0.1.0/24]}"),
        (_on("eth0", "192.0.2.10"), ""),
    ],
)
def test_a_network_plugin_with_the_admitted_ranges_is_no_remark(facts: Facts, options: str) -> None:
    assert desired(service(), facts=facts, options=config(options, proxies=("blue",))).remarks == ()


def test_what_could_not_be_read_is_handed_on_and_the_rest_is_served() -> None:
    """Sorted by place."""
    unreadable = (Unreadable("b.yaml:1", "not YAML"), Unreadable("a.yaml:9", "not YAML"))
    planned = plan(Snapshot((service(),), unreadable=unreadable), FACTS, config())
    assert planned.unreadable == unreadable[::-1]
    assert planned.dnat.redirects
