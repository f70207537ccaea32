"""What of a PROXY load balancer is relayed: its addresses, externalIPs among them, and its TCP ports.

externalIPs are short-circuited like a load balancer's address, but anyone who can write a Service sets them.
`ipMode: Proxy` is believed, unless the node's own rules or the administrator say otherwise.
"""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from nodeagent.model.addresses import Endpoint
from nodeagent.model.desired import DecisionStatus
from nodeagent.model.facts import InterfaceAddress
from nodeagent.model.objects import PROXY_PROTOCOL, ServiceRange, Snapshot
from nodeagent.plan.balancers.eligibility import doubtful_endpoints
from nodeagent.plan.planner import plan
from tests.plan.made_up import FACTS, NODE, config, desired, endpoint, of_service, point, redirects, service


def test_a_cluster_ip_that_leads_to_pods_of_the_node_alone_is_named() -> None:
    """It is relayed nevertheless: nodes with a pod of it are served."""
    planned = desired(replace(service(), local_only=True))
    assert len(redirects(planned)) == 2
    (remark,) = of_service(planned).remarks
    assert remark.startswith("internalTrafficPolicy is Local: on a node without a ready pod of it")


@pytest.mark.parametrize("whose", ["of a load balancer", "of another Service", "in a Service range"])
def test_a_known_cluster_ip_is_never_redirected_whatever_the_port(whose: str) -> None:
    """Not for a listed Service either, and not on a port that the other Service does not have."""
    dns = ip_address("10.96.0.10")
    snapshot = Snapshot(
        services=(
            service(ips=("192.0.2.1", str(dns)), ports=("80", "443", "8443")),
            *([service("red", ips=(), cluster_ips=(str(dns),))] if whose == "of a load balancer" else []),
        ),
        other_cluster_ips=frozenset([dns] if whose == "of another Service" else []),
        service_ranges=(ServiceRange("x", (ip_network("10.96.0.0/16"),)),) if "range" in whose else (),
        node=NODE,
    )
    planned = plan(snapshot, FACTS, config())
    assert set(redirects(planned)) == {"192.0.2.1:80", "192.0.2.1:443", "192.0.2.1:8443"}
    assert any(remark.startswith("10.96.0.10: not redirected: ") for remark in of_service(planned).remarks)


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


@pytest.mark.parametrize("mode", [None, "VIP", "Unheard-of"])
def test_any_other_ip_mode_is_served(mode: str | None) -> None:
    """kube-proxy short-circuits all but Proxy."""
    assert (
        of_service(desired(service(points=(point("192.0.2.1", mode=mode),)))).status is DecisionStatus.SERVED
    )


@pytest.mark.parametrize(
    "ip",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("169.254.169.254", "169.254.20.10", "169.254.66.9", "10.96.0.7", "10.244.1.9"),
        *("::1", "::", "::192.0.2.1", "::ffff:192.0.2.1", "64:ff9b::c000:201", "2002:c000:201::1"),
        *("192.0.0.192", "100.100.100.200", "168.63.129.16", "fd00:42::42", "fd00:c1::a9fe:a9fe"),
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:a9fe:a9fe::1", "fd00:100::100:200"),
        *("::ffff:0:169.254.169.254", "fec0::1"),
        *("fe80::1", "ff02::1", "fd68:6169:7270::9"),
    ],
)
def test_an_address_that_no_load_balancer_can_have_is_refused(ip: str) -> None:
    """A redirect of it would break the node itself."""
    planned = desired(service(ips=(ip,)))
    decision = of_service(planned)
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "BadAddress")
    (remark,) = decision.remarks
    assert remark.startswith(f"{ip_address(ip)}: not redirected: it is") or ip.startswith("0.")
    assert not planned.dnat.redirects


@pytest.mark.parametrize(("external", "code"), [(True, "NodeAddress"), (False, "Annotated")])
def test_an_address_alone_in_its_network_is_the_nodes_if_its_node_object_has_it(
    code: str, *, external: bool
) -> None:
    """As some clouds' public addresses; kube-vip's are on an interface, too, but not in the Node object."""
    address = ip_address("203.0.113.7")
    facts = replace(FACTS, addresses=(InterfaceAddress(address, 32, "eth0"),))
    node = replace(NODE, external_addresses=(address,) if external else ())
    found = service(ips=("203.0.113.7",), annotations={PROXY_PROTOCOL: "v2"})
    planned = desired(found, node=node, facts=facts, options=config(proxies=()))
    assert of_service(planned).code == code


def test_an_address_that_could_not_be_read_is_refused_with_what_was_written() -> None:
    """The remark is the reader's own. One among others costs nothing but itself."""
    problem = "status.loadBalancer.ingress[0]: 'x' is not an IP address"
    decision = of_service(desired(service(points=(), problems=(problem,))))
    assert (decision.status, decision.code) == (DecisionStatus.REFUSED, "BadAddress")
    assert decision.remarks == (problem,)
    decision = of_service(desired(service(problems=(problem,))))
    assert (decision.status, decision.remarks) == (DecisionStatus.SERVED, (problem,))


def test_a_list_of_ranges_is_complete_in_both_families() -> None:
    """`loadBalancers.addressRanges` of IPv6 alone admits no IPv4 address, and the reverse."""
    found = service(
        ips=("192.0.2.1", "2001:db8::1", "2001:db8:1::1"),
        ports=("443",),
        cluster_ips=("10.96.0.7", "fd00:10:96::7"),
    )
    planned = desired(found, options=config(balancers="addressRanges: ['2001:db8::/48']"))
    assert set(redirects(planned)) == {"[2001:db8::1]:443"}
    assert {listener.bind.address.version for listener in planned.listeners} == {6}
    assert of_service(planned).remarks == (
        "192.0.2.1: not redirected: loadBalancers.addressRanges does not include it",
        "2001:db8:1::1: not redirected: loadBalancers.addressRanges does not include it",
    )
    planned = desired(found, options=config(balancers="addressRanges: [192.0.2.0/24]"))
    assert set(redirects(planned)) == {"192.0.2.1:443"}


@pytest.mark.parametrize("own", ["198.51.100.1", "198.51.100.2", "192.0.2.5", "127.0.0.1", "169.254.66.9"])
def test_no_address_of_the_node_or_of_the_api_server_is_taken(own: str) -> None:
    """Even of a listed Service: its Node's, an interface's, the API server's, loopback, the relay's."""
    facts = replace(
        FACTS,
        addresses=(InterfaceAddress(ip_address("198.51.100.2"), 24, "eth1"),),
        api_servers=frozenset({endpoint("192.0.2.5:6443")}),
    )
    ips = tuple(map(ip_address, (own, "203.0.113.7")))
    planned = desired(replace(service(ports=("443",)), external_ips=ips), facts=facts)
    assert set(redirects(planned)) == {"192.0.2.1:443", "203.0.113.7:443"}
    (remark,) = of_service(planned).remarks
    assert remark.startswith(f"{own}: ")
    assert "not redirected" in remark


IN_PROXY_MODE = service(points=(point("192.0.2.1", mode="Proxy"),), ports=("443",))
DOUBTFUL = {endpoint("192.0.2.1:443")}


def test_honor_believes_it_whatever_the_rules_say() -> None:
    """For who knows better."""
    facts = replace(FACTS, short_circuited=frozenset({ip_address("192.0.2.1")}))
    planned = desired(IN_PROXY_MODE, facts=facts, options=config(balancers="ipMode: honor"))
    assert of_service(planned).code == "IPModeProxy"


def test_an_impossible_address_stays_one() -> None:
    """Whatever its ipMode."""
    loopback = service(points=(point("127.0.0.1", mode="Proxy"),))
    planned = desired(loopback, options=config(balancers="ipMode: ignore"))
    assert not planned.dnat.redirects


@pytest.mark.parametrize("mode", ["honor", "ignore"])
def test_rules_are_read_only_where_they_would_decide(mode: str) -> None:
    """Not where the administrator has."""
    snapshot = Snapshot(services=(IN_PROXY_MODE,))
    assert doubtful_endpoints(snapshot, config()) == DOUBTFUL
    assert doubtful_endpoints(snapshot, config(balancers=f"ipMode: {mode}")) == frozenset()


def test_only_proxy_load_balancers_in_that_mode_are_in_doubt() -> None:
    """Of a Service with both kinds of address, only the one."""
    mixed = service(
        points=(point("192.0.2.1", mode="Proxy"), point("192.0.2.2"), point(hostname="lb")), ports=("443",)
    )
    unlisted = service("red", points=(point("192.0.2.3", mode="Proxy"),))
    snapshot = Snapshot(services=(mixed, unlisted, service("green")))
    assert doubtful_endpoints(snapshot, config()) == DOUBTFUL
