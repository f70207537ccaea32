"""How a load balancer is relayed, and what hinders it."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.model.desired import DecisionStatus
from nodeagent.model.facts import InterfaceAddress
from nodeagent.plan.balancers.node_programs import NODE_PORTS
from tests.plan.made_up import (
    FACTS,
    NODE,
    config,
    desired,
    endpoint,
    hosts,
    ingress,
    of_service,
    redirects,
    relay_of,
    service,
)


def test_with_every_port_taken_the_load_balancer_is_refused() -> None:
    """As on a node where the controller itself runs in the host's network."""
    holders = {endpoint("0.0.0.0:80"): 33, endpoint("0.0.0.0:443"): 33}
    decision = of_service(desired(service(), facts=replace(FACTS, port_holders=holders)))
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "PortTaken")
    assert decision.reason == "; ".join(decision.taken)
    assert len(decision.remarks) == len(decision.taken) == 2


def test_a_port_of_the_relay_address_that_another_user_holds_costs_that_listener_and_the_names() -> None:
    """A name carries every port with it: the squatter would have that one."""
    relay = relay_of(desired(service()))[4]
    others = {endpoint(f"{relay}:80"): 65534, endpoint("169.254.66.200:443"): 65534}
    facts = replace(FACTS, port_holders=others)
    planned = desired(service(), ingress("a.example.com"), facts=facts)
    assert set(redirects(planned)) == {"192.0.2.1:443"}
    assert [each.bind.port for each in planned.listeners] == [443]
    assert hosts(planned) == []
    (taken,) = of_service(planned).taken
    assert f"a process of user 65534 on this node holds port 80 of {relay}:80" in taken


def test_the_node_port_range_is_the_configured_one() -> None:
    """kube-proxy binds its health checks there (`healthCheckNodePort`), and could not any more."""
    options = config(balancers="nodePortRange: 20000-22767")
    planned = desired(service(ports=("20000", "30000")), options=options)
    assert {listener.bind.port for listener in planned.listeners} == {30000}


_NODE_PORTS = """
22 53 111 179 2112 2375 2376 2379 2380 2381 2382 4240 4244 4245 4250 4251 5473 6443 6444 6641 6642
6643 6644 6781 6782 6783 6784 7472 7473 7946 8132 8133 8134 8797 9091 9093 9098 9099 9100 9102 9103
9121 9253 9258 9259 9310 9345 9353 9409 9410 9467 9468 9476 9537 9641 9642 9643 9644 9878 9879 9890
9891 9893 9901 9962 9963 9964 9965 9977 9978 9979 10010 10248 10249 10250 10254 10255 10256 10257
10258 10259 10260 10263 10349 10350 10351 10357 11443 17697 20244 20256 20257 22623 22624 29101
29102 29103 50051 61678 61679
"""


def test_the_ports_of_a_nodes_programs_are_these() -> None:
    """Written twice: by program with its source there, in order here."""
    assert sorted(NODE_PORTS) == [int(port) for port in _NODE_PORTS.split()]


@pytest.mark.parametrize("interface", ["eth0", "lo", "cni0"])
def test_a_relay_address_in_use_by_another_program_costs_only_that_load_balancer(interface: str) -> None:
    """The reason says where it is and what to do."""
    before = desired(service(), service("green", ips=("192.0.2.2",)))
    address = relay_of(before)[4]
    standing = InterfaceAddress(ip_address(address), 24, interface)
    planned = desired(
        service(), service("green", ips=("192.0.2.2",)), facts=replace(FACTS, addresses=(standing,))
    )
    decision = of_service(planned)
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "AddressInUse")
    assert f"{address} is already used on {interface} by another program" in decision.reason
    assert "choose another relay.ipv4, the same on every node" in decision.reason
    assert of_service(planned, "green") == of_service(before, "green")


def test_a_relay_address_that_nodeagent_put_there_is_not_an_obstacle() -> None:
    """A second pass finds the first one's work."""
    first = desired(service())
    standing = InterfaceAddress(ip_address(relay_of(first)[4]), 32, "hairpin0", ours=True)
    assert desired(service(), facts=replace(FACTS, addresses=(standing,))) == first


@pytest.mark.parametrize(
    ("address", "option", "network", "room"),
    [("192.0.2.{}", "ipv4", "10.9.0.0/29", 6), ("2001:db8::{}", "ipv6", "fd00::/125", 7)],
)
def test_an_exhausted_range_refuses_only_the_newest(
    address: str, option: str, network: str, room: int
) -> None:
    """Each family has a range of its own."""
    names = [f"lb{number}" for number in range(8)]
    services = [service(name, ips=(address.format(i),), created=i) for i, name in enumerate(names, start=1)]
    planned = desired(*services, options=config(f"relay: {{{option}: '{network}'}}", proxies=names))
    assert {each.load_balancer.name: each.code for each in planned.load_balancers} == {
        **dict.fromkeys(names[:room], "Listed"),
        **dict.fromkeys(names[room:], "RangeExhausted"),
    }
    assert f"relay.{option}" in of_service(planned, "lb7").reason


def test_the_proxy_header_names_the_nodes_address_of_the_family() -> None:
    """What its Node object reports has precedence over what its sockets say."""
    facts = replace(FACTS, source_addresses=(ip_address("203.0.113.5"), ip_address("2001:db8:1::1")))
    planned = desired(service(ips=("192.0.2.1", "2001:db8::1"), ports=("443",)), facts=facts)
    assert [str(each.node_address) for each in planned.listeners] == ["198.51.100.1", "2001:db8:1::1"]
    nameless = desired(service(ports=("443",)), node=replace(NODE, addresses=()))
    assert [each.node_address for each in nameless.listeners] == [None]
