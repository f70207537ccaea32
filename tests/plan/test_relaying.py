from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.errors import quoted
from nodeagent.model.addresses import Endpoint
from nodeagent.model.decisions import DecisionStatus, refused, some_notes
from nodeagent.model.facts import InterfaceAddress
from nodeagent.model.objects import Snapshot
from nodeagent.plan.balancers.this_node import NODE_PORTS, doubtful_endpoints
from tests.cases import cases_of
from tests.plan.made_up import FACTS, NODE, config, desired, endpoint, of_service, point, relay_of, service

CASES = cases_of(__file__, "cases.yaml")


def test_the_ports_of_a_nodes_programs_are_these() -> None:
    assert sorted(NODE_PORTS) == CASES["node_ports"]


def test_a_relay_address_that_nodeagent_put_there_is_not_an_obstacle() -> None:
    """A second pass finds the first one's work."""
    first = desired(service())
    standing = InterfaceAddress(ip_address(relay_of(first)[4]), 32, "hairpin0", ours=True)
    facts = replace(FACTS, addresses=(standing,))
    assert desired(service(), facts=facts) == first
    node = replace(NODE, addresses=(*NODE.addresses, standing.address))
    assert desired(service(), facts=facts, node=node).listeners


@pytest.mark.parametrize(
    ("address", "option", "network", "room"),
    [("192.0.2.{}", "ipv4", "10.9.0.0/29", 6), ("2001:db8::{}", "ipv6", "fd00::/125", 7)],
)
def test_an_exhausted_range_refuses_only_the_newest(
    address: str, option: str, network: str, room: int
) -> None:
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


def test_notes_and_reasons_are_bounded_whatever_a_service_publishes() -> None:
    """Each is kept for each load balancer and hostname, in the memory of every agent."""
    huge = service(
        ips=[f"198.18.{each // 250}.{each % 250 + 1}" for each in range(50)],
        ports=[str(port) for port in range(1000, 1060)],
    )
    huge = replace(huge, external_ips=tuple(ip_address(2**32 - 2**30 + each) for each in range(1000)))
    facts = replace(FACTS, port_holders={Endpoint(ip_address(0), port): 1 for port in range(1000, 1060)})
    for options in (config(proxies=()), config()):
        decision = of_service(desired(huge, facts=facts, options=options))
        assert len("".join((decision.reason, *decision.remarks, *decision.taken))) < 40_000


@pytest.mark.parametrize(
    ("shown", "most"), [(quoted, 60), (lambda text: refused("BadAddress", text).reason, 600)]
)
def test_what_a_tenant_writes_is_repeated_up_to_a_bound(shown: Callable[[str], str], most: int) -> None:
    assert "..." not in shown("x" * most)
    assert shown("x" * (most + 1)).count("x") == most


def test_so_many_notes_are_kept_and_the_others_counted() -> None:
    assert some_notes(["a note"] * 32) == ("a note",) * 32
    assert some_notes(["a note"] * 33) == (*("a note",) * 32, "and 1 more notes")


@pytest.mark.parametrize("ip", CASES["never"])
def test_an_address_that_no_load_balancer_can_have_is_refused(ip: str) -> None:
    """A redirect of it would break the node itself."""
    planned = desired(service(ips=(ip,)))
    decision = of_service(planned)
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "BadAddress")
    (remark,) = decision.remarks
    assert remark.startswith(f"{ip_address(ip)}: not redirected: it is") or ip.startswith("0.")
    assert not planned.dnat.redirects


IN_PROXY_MODE = service(points=(point("192.0.2.1", mode="Proxy"),), ports=("443",))
DOUBTFUL = {endpoint("192.0.2.1:443")}


@pytest.mark.parametrize("mode", ["honor", "ignore"])
def test_rules_are_read_only_where_they_would_decide(mode: str) -> None:
    snapshot = Snapshot(services=(IN_PROXY_MODE,))
    assert doubtful_endpoints(snapshot, config()) == DOUBTFUL
    assert doubtful_endpoints(snapshot, config(balancers=f"ipMode: {mode}")) == frozenset()


def test_only_proxy_load_balancers_in_that_mode_are_in_doubt() -> None:
    mixed = service(
        points=(point("192.0.2.1", mode="Proxy"), point("192.0.2.2"), point(hostname="lb")), ports=("443",)
    )
    unlisted = service("red", points=(point("192.0.2.3", mode="Proxy"),))
    snapshot = Snapshot(services=(mixed, unlisted, service("green")))
    assert doubtful_endpoints(snapshot, config()) == DOUBTFUL
