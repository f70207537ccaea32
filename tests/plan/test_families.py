"""A load balancer's addresses of a family that this node does not support are ignored, and reported."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

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
