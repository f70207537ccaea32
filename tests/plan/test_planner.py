from dataclasses import replace
from ipaddress import ip_network
from unittest.mock import Mock

import pytest

from nodeagent.agent.convergence import defer_until_ready
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired, DnatRules
from nodeagent.model.objects import Snapshot
from nodeagent.plan.planner import Planner, plan
from tests.plan.made_up import (
    FACTS,
    NODE,
    config,
    desired,
    endpoint,
    hosts,
    ingress,
    of_name,
    of_service,
    point,
    redirects,
    relay_of,
    service,
)


def test_an_empty_cluster_asks_for_nothing() -> None:
    """Nothing but the pods' ranges, which redirect nothing by themselves."""
    assert desired() == Desired(dnat=DnatRules(pods=NODE.pod_cidrs))
    assert desired(node=None) == Desired()


def test_without_dnat_the_hosts_lines_alone_serve_the_node() -> None:
    planned = desired(service(), ingress("www.example.com"), options=config("dnat: {backend: none}"))
    assert (planned.dnat.redirects, planned.dnat.pods) == ((), ())
    assert planned.listeners
    # The guard is there all the same: the node's neighbours must not reach the relay.
    assert [str(network) for network in planned.dnat.guarded] == ["169.254.66.0/24"]
    assert planned.dnat.users == 250
    assert planned.dnat.admitted == ()
    assert hosts(planned) == [f"{relay_of(planned)[4]} www.example.com"]


def test_pods_that_nothing_leads_to_the_relay_are_kept_from_it() -> None:
    """HAProxy connects as the node, which network policies admit: to endpoints that a tenant writes."""
    for options in ("dnat: {pods: false}", "dnat: {backend: none}"):
        assert desired(service(), options=config(options)).dnat.admitted == ()
        by_coredns = desired(service(), options=config(f"{options}\ncoredns: {{servesPods: true}}"))
        assert (by_coredns.dnat.pods, by_coredns.dnat.admitted) == ((), NODE.pod_cidrs)


def test_pod_ranges_come_from_the_node_unless_they_are_configured() -> None:
    """Sorted, IPv4 first, none within another; a CNI may give its own."""
    given = ("fd00:244::/64", "10.244.9.0/24", "10.244.1.128/25", "10.244.1.0/24")
    node = replace(NODE, pod_cidrs=tuple(map(ip_network, given)))
    own = ["10.244.1.0/24", "10.244.9.0/24", "fd00:244::/64"]
    assert list(map(str, desired(node=node).dnat.pods)) == own
    configured = desired(node=node, options=config("dnat: {podCIDRs: [10.7.0.0/16]}"))
    assert configured.dnat.pods == (ip_network("10.7.0.0/16"),)


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
    assert all(word in remark for word in ("guard", "dnat.podCIDRs"))
    known = desired(service(), options=by_coredns)
    assert (known.dnat.pods, known.remarks) == ((), ())


NAME = "www.example.com"
PLANNED = desired(
    service(),
    service("green", ips=("192.0.2.2", "2001:db8::2"), ports=("443",)),
    ingress(NAME),
    ingress("green.example.com", name="green", points=(point("192.0.2.2"),)),
    ingress("*.example.com", "other.test", name="skipped"),
)


def answering(*silent: str) -> Desired:
    binds = {listener.bind for listener in PLANNED.listeners}
    return defer_until_ready(PLANNED, binds - {endpoint(text) for text in silent})


def test_a_silent_port_takes_its_redirects_and_every_name_of_its_relay_and_the_others_stay() -> None:
    """A name carries every port with it, and another program could have the one that is missing."""
    relay = relay_of(PLANNED)[4]
    planned = answering(f"{relay}:443")
    assert set(redirects(PLANNED)) - set(redirects(planned)) == {"192.0.2.1:443"}
    assert [f"{relay}:443" in remark for remark in of_service(planned).remarks] == [True]
    assert of_service(planned, "green") == of_service(PLANNED, "green")
    decision = of_name(planned, NAME)
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "RelayDown")
    assert not [line for line in hosts(planned) if line.endswith(NAME)]
    for name in ("green.example.com", "*.example.com", "other.test"):  # served, and skipped
        assert of_name(planned, name) == of_name(PLANNED, name)


def test_a_name_of_two_families_keeps_the_one_that_answers() -> None:
    relays = relay_of(PLANNED, "green")
    planned = answering(f"[{relays[6]}]:443")
    assert f"{relays[4]} green.example.com" in hosts(planned)
    assert f"{relays[6]} green.example.com" not in hosts(planned)
    assert of_name(planned, "green.example.com").status is DecisionStatus.SERVED


@pytest.mark.parametrize("step", ["matching", "hostname_decisions"])
def test_a_pass_that_fails_halfway_leaves_nothing_behind(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent goes on with the same planner: what a step had remembered by then would stay for good."""
    options = config(proxies=["blue"])
    before = Snapshot(services=(service(),), ingresses=(ingress("www.example.com"),), node=NODE)
    after = replace(before, ingresses=(ingress("shop.example.com"),))
    planner = Planner(options)
    planner.plan(before, FACTS)
    with monkeypatch.context() as patch:
        patch.setattr(f"nodeagent.plan.names.{step}.Changed", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            planner.plan(after, FACTS)
    for snapshot in (after, before):
        assert planner.plan(snapshot, FACTS) == plan(snapshot, FACTS, options)
