"""A load balancer's addresses of a family that this node does not support are ignored, and reported."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from nodeagent.model.desired import DecisionStatus
from nodeagent.model.facts import Facts, InterfaceAddress
from nodeagent.model.objects import Node
from tests.plan.made_up import (
    FACTS,
    NODE,
    desired,
    endpoint,
    ingress,
    of_name,
    of_service,
    redirects,
    relay_of,
    service,
)

FOUR, SIX = "198.51.100.11/24 eth0", "2001:db8:5::11/64 eth0"
ALWAYS = ("127.0.0.1/8 lo", "::1/128 lo", "fe80::1/64 eth0", "169.254.20.10/32 nodelocaldns")
DUAL = service(ips=("192.0.2.1", "2001:db8::1"), ports=("443", "80"))
BARE = replace(NODE, addresses=(), pod_cidrs=())
SYSCTL = "sysctl net.ipv6.conf.default.disable_ipv6"


def on_a_node(*addresses: str, ipv6_off: str = "") -> Facts:
    """Facts of a node with these addresses, in addition to those that every node has."""
    standing = []
    for text in (*ALWAYS, *addresses):
        address, interface = text.split()
        parsed = ip_interface(address)
        standing.append(InterfaceAddress(parsed.ip, parsed.network.prefixlen, interface))
    return replace(FACTS, addresses=tuple(standing), source_addresses=(), ipv6_off=ipv6_off)


def test_ipv6_switched_off_costs_only_ipv6_and_is_reported_once() -> None:
    """Not once a port."""
    planned = desired(DUAL, facts=on_a_node(FOUR, ipv6_off=SYSCTL), node=BARE)
    assert set(redirects(planned)) == {"192.0.2.1:443", "192.0.2.1:80"}
    decision = of_service(planned)
    assert decision.status is DecisionStatus.SERVED
    assert decision.remarks == (f"2001:db8::1: not relayed: IPv6 is switched off on this node ({SYSCTL})",)


@pytest.mark.parametrize(
    ("own", "relayed", "left_alone", "family"),
    [(FOUR, "192.0.2.1", "2001:db8::1", 6), (SIX, "2001:db8::1", "192.0.2.1", 4)],
    ids=["IPv4 alone", "IPv6 alone"],
)
def test_a_family_without_an_address_of_the_nodes_own_is_left_alone(
    own: str, relayed: str, left_alone: str, family: int
) -> None:
    """A loopback, link-local or node-local address is none by which the node could be known."""
    planned = desired(DUAL, facts=on_a_node(own), node=BARE)
    assert {str(redirect.match.address) for redirect in planned.dnat.redirects} == {relayed}
    (remark,) = of_service(planned).remarks
    assert remark == f"{left_alone}: not relayed: this node has no IPv{family} address of its own"


def test_names_keep_the_family_that_is_spoken() -> None:
    """The other one is of no use to them, and no port of theirs is missing."""
    planned = desired(DUAL, ingress("www.example.com"), facts=on_a_node(FOUR), node=BARE)
    assert [(str(line.address), line.name) for line in planned.hosts] == [
        (relay_of(planned)[4], "www.example.com")
    ]


def test_a_load_balancer_of_the_other_family_alone_is_skipped() -> None:
    """With the reason in the remarks, and nothing made for it."""
    planned = desired(service(ips=("2001:db8::1",)), facts=on_a_node(FOUR), node=BARE)
    decision = of_service(planned)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "FamilyNotSupported")
    assert "2001:db8::1: not relayed: this node has no IPv6 address of its own" in decision.remarks
    assert (planned.addresses, planned.listeners, planned.dnat.redirects) == ((), (), ())


OURS = InterfaceAddress(ip_address("fd68:6169:7270::5"), 128, "lo", ours=True)
ELEVEN = ip_address("2001:db8:5::11")
ON_FOUR = on_a_node(FOUR)


@pytest.mark.parametrize(
    ("facts", "node", "families"),
    [
        # It is there because the family was relayed yesterday.
        (replace(ON_FOUR, addresses=(*ON_FOUR.addresses, OURS)), BARE, {4}),
        (on_a_node(FOUR, ipv6_off=SYSCTL), replace(BARE, addresses=(ELEVEN,)), {4}),
        (ON_FOUR, replace(BARE, addresses=(ELEVEN,)), {4, 6}),
        (ON_FOUR, replace(BARE, pod_cidrs=(ip_network("fd00:10:244:1::/64"),)), {4, 6}),
        (replace(ON_FOUR, source_addresses=(ELEVEN,)), BARE, {4, 6}),
        # As without the right to list addresses.
        (replace(FACTS, addresses=(), source_addresses=()), BARE, {4, 6}),
    ],
    ids=["relay address", "switched off", "Node object", "its pods", "its connections", "nothing known"],
)
def test_which_signs_of_a_family_count(facts: Facts, node: Node, families: set[int]) -> None:
    """A node whose pods alone have IPv6, say; IPv6 switched off counts more than the cluster's record."""
    assert set(relay_of(desired(DUAL, facts=facts, node=node))) == families


def test_a_port_taken_in_one_family_is_relayed_in_the_other() -> None:
    """As nginx's sockets on :: are for IPv6 alone. Names carry every port, so they get no line."""
    facts = replace(on_a_node(FOUR, SIX), port_holders={endpoint("[::]:443"): 33})
    planned = desired(DUAL, ingress("www.example.com"), facts=facts, node=BARE)
    assert "192.0.2.1:443" in redirects(planned)
    assert "[2001:db8::1]:443" not in redirects(planned)
    assert "[2001:db8::1]:80" in redirects(planned)
    (remark,) = of_service(planned).remarks
    assert remark.startswith("[2001:db8::1]:443: not relayed: a process of user 33 on this node")
    assert planned.hosts == ()
    assert of_name(planned, "www.example.com").code == "PartlyRelayed"
