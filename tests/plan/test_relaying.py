"""How a load balancer is relayed, and what hinders it."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.model.desired import DecisionStatus
from nodeagent.model.facts import InterfaceAddress
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
    redirects,
    relay_of,
    service,
)


def test_the_api_servers_own_address_and_port_are_never_redirected() -> None:
    """The other ports of that address are."""
    facts = replace(FACTS, api_servers=frozenset({endpoint("192.0.2.1:6443")}))
    planned = desired(service(ports=("443", "6443")), facts=facts)
    assert set(redirects(planned)) == {"192.0.2.1:443"}
    assert [str(each.server) for each in planned.listeners] == ["10.96.0.7:443"]
    (remark,) = of_service(planned).remarks
    assert remark == "192.0.2.1:6443: never redirected: it is the API server's own address and port"


def test_a_port_that_a_process_has_on_every_address_is_left_out_and_named() -> None:
    """The relay could not listen on it."""
    planned = desired(service(), facts=replace(FACTS, port_holders={endpoint("0.0.0.0:80"): 33}))
    assert set(redirects(planned)) == {"192.0.2.1:443"}
    (remark,) = of_service(planned).remarks
    assert remark.startswith(
        "192.0.2.1:80: not relayed: a process of user 33 on this node holds port 80 of every"
    )
    assert of_service(planned).taken == (remark,)


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


@pytest.mark.parametrize(("port", "whose"), [(10250, "kubelet"), (10256, "kube-proxy"), (6443, "API server")])
def test_a_port_of_the_nodes_own_daemons_is_never_taken_from_them(port: int, whose: str) -> None:
    """Whether or not they listen just now: one that restarts must find it free."""
    planned = desired(service(ports=("80", str(port))))
    assert {listener.bind.port for listener in planned.listeners} == {80}
    assert {redirect.match.port for redirect in planned.dnat.redirects} == {80}
    (decision,) = planned.load_balancers
    (remark,) = decision.remarks
    assert f"not relayed: port {port} is for the node's own {whose}" in remark


@pytest.mark.parametrize("port", [30000, 31063, 32767])
def test_no_port_of_the_node_port_range_is_relayed(port: int) -> None:
    """kube-proxy binds its health checks there (`healthCheckNodePort`), and could not any more."""
    planned = desired(service(ports=("80", "29999", "32768", str(port))))
    assert {listener.bind.port for listener in planned.listeners} == {80, 29999, 32768}
    assert hosts(desired(service(ports=("80", str(port))), ingress("a.example.com"))) == []
    planned = desired(service(ports=(str(port),)), options=config(balancers="nodePortRange: 20000-22767"))
    assert {listener.bind.port for listener in planned.listeners} == {port}


def test_a_load_balancer_with_a_udp_port_has_hosts_lines_only_if_it_is_listed() -> None:
    """A line leads UDP to the relay as well: HTTP/3, and whatever else the address serves."""
    annotations = {"nodeagent.io/proxy-protocol": "v1"}
    found = service("annotated", ports=("443", "443/UDP"), annotations=annotations)
    claim = ingress("www.example.com")
    planned = desired(found, claim)
    assert redirects(planned) == {"192.0.2.1:443": f"{relay_of(planned, 'annotated')[4]}:443"}
    assert of_name(planned, "www.example.com").code == "PartlyRelayed"
    assert hosts(planned) == []
    listed = desired(found, claim, options=config("", proxies=["annotated"]))
    assert hosts(listed) == [f"{relay_of(listed, 'annotated')[4]} www.example.com"]


def test_a_port_that_the_administrator_takes_off_the_list_is_relayed() -> None:
    """That one alone: `loadBalancers.allowPorts`."""
    planned = desired(service(ports=("22", "179", "443")), options=config(balancers="allowPorts: [22]"))
    assert {listener.bind.port for listener in planned.listeners} == {22, 443}
    assert {redirect.match.port for redirect in planned.dnat.redirects} == {22, 443}
    (remark,) = of_service(planned).remarks
    assert "not relayed: port 179" in remark


@pytest.mark.parametrize("port", [80, 443, 3306, 5000, 5001, 8080, 8443, 9000, 9001, 9090, 9443, 10443])
def test_what_load_balancers_commonly_publish_is_no_port_of_a_daemon(port: int) -> None:
    """Though some daemon somewhere has it: what listens already is seen."""
    planned = desired(service(ports=(str(port),)))
    assert redirects(planned) == {f"192.0.2.1:{port}": f"{relay_of(planned)[4]}:{port}"}


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
    assert of_service(planned, "lb7").reason == (
        f"no relay address is left in {network}: widen relay.{option}, the same on every node"
    )


def test_the_proxy_header_names_the_nodes_address_of_the_family() -> None:
    """What its Node object reports has precedence over what its sockets say."""
    facts = replace(FACTS, source_addresses=(ip_address("203.0.113.5"), ip_address("2001:db8:1::1")))
    planned = desired(service(ips=("192.0.2.1", "2001:db8::1"), ports=("443",)), facts=facts)
    assert [str(each.node_address) for each in planned.listeners] == ["198.51.100.1", "2001:db8:1::1"]
    nameless = desired(service(ports=("443",)), node=replace(NODE, addresses=()))
    assert [each.node_address for each in nameless.listeners] == [None]
