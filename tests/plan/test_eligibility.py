"""What of a PROXY load balancer is relayed: its addresses and its TCP ports."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.model.desired import Verdict
from nodeagent.model.facts import InterfaceAddress
from nodeagent.model.objects import PROXY_PROTOCOL, LoadBalancerPoint
from tests.plan.made_up import FACTS, NODE, config, desired, of_service, point, redirects, service


def test_every_tcp_port_is_redirected() -> None:
    """Not only 80 and 443."""
    planned = desired(service(ports=("80", "443", "8443", "2222")))
    assert set(redirects(planned)) == {"192.0.2.1:2222", "192.0.2.1:80", "192.0.2.1:443", "192.0.2.1:8443"}


def test_every_address_is_redirected_in_both_families() -> None:
    """To one relay address a family."""
    planned = desired(
        service(
            ips=("192.0.2.1", "192.0.2.2", "2001:db8::1"),
            ports=("443",),
            cluster_ips=("10.96.0.7", "fd00:10:96::7"),
        )
    )
    relay4, relay6 = of_service(planned).relay_addresses
    assert redirects(planned) == {
        "192.0.2.1:443": f"{relay4}:443",
        "192.0.2.2:443": f"{relay4}:443",
        "[2001:db8::1]:443": f"[{relay6}]:443",
    }
    assert [str(listener.server) for listener in planned.listeners] == [
        "10.96.0.7:443",
        "[fd00:10:96::7]:443",
    ]


def test_an_address_given_twice_is_redirected_once() -> None:
    """Some providers repeat it, once with a hostname."""
    planned = desired(service(points=(point("192.0.2.1"), point("192.0.2.1", hostname="lb")), ports=("443",)))
    assert len(planned.dnat.redirects) == 1


@pytest.mark.parametrize("protocol", ["UDP", "SCTP"])
def test_a_port_that_is_not_tcp_is_left_alone_and_named(protocol: str) -> None:
    """HTTP/3 next to HTTPS on one number."""
    planned = desired(service(ports=("443", f"443/{protocol}")))
    assert set(redirects(planned)) == {"192.0.2.1:443"}
    assert of_service(planned).remarks == (f"port 443/{protocol}: ignored, the PROXY header is only for TCP",)


def test_a_cluster_ip_that_leads_to_pods_of_the_node_alone_is_named() -> None:
    """It is relayed nevertheless: nodes with a pod of it are served."""
    planned = desired(replace(service(), local_only=True))
    assert len(redirects(planned)) == 2
    (remark,) = of_service(planned).remarks
    assert remark.startswith("internalTrafficPolicy is Local: on a node without a ready pod of it")


def test_a_service_with_udp_alone_is_skipped() -> None:
    """With its ports named."""
    decision = of_service(desired(service(ports=("53/UDP",))))
    assert (decision.verdict, decision.code) == (Verdict.SKIPPED, "NoTCPPort")
    assert decision.reason == "the Service has no TCP port"
    assert decision.remarks == ("port 53/UDP: ignored, the PROXY header is only for TCP",)


def test_a_service_without_ports_is_refused() -> None:
    """There is nothing to relay."""
    decision = of_service(desired(service(ports=())))
    assert (decision.verdict, decision.code) == (Verdict.REFUSED, "NoPorts")
    assert decision.reason == "the Service has no ports"


def test_a_service_without_a_cluster_ip_is_refused() -> None:
    """The relay would have nowhere to send to."""
    decision = of_service(desired(service(cluster_ips=())))
    assert (decision.verdict, decision.code) == (Verdict.REFUSED, "NoClusterIP")


def test_the_only_cluster_ip_serves_the_other_family_too() -> None:
    """The relay supports both."""
    planned = desired(service(ips=("192.0.2.1", "2001:db8::1"), ports=("443",)))
    assert [str(listener.server) for listener in planned.listeners] == ["10.96.0.7:443", "10.96.0.7:443"]
    assert [listener.bind.address.version for listener in planned.listeners] == [4, 6]


def test_ip_mode_proxy_is_skipped() -> None:
    """kube-proxy leaves such an address alone."""
    decision = of_service(desired(service(points=(point("192.0.2.1", mode="Proxy"),))))
    assert (decision.verdict, decision.code) == (Verdict.SKIPPED, "IPModeProxy")
    assert decision.reason == "ipMode Proxy: kube-proxy does not short-circuit its address"


@pytest.mark.parametrize("mode", [None, "VIP", "Unheard-of"])
def test_any_other_ip_mode_is_served(mode: str | None) -> None:
    """kube-proxy short-circuits all but Proxy."""
    assert of_service(desired(service(points=(point("192.0.2.1", mode=mode),)))).verdict is Verdict.SERVED


def test_one_address_in_ip_mode_proxy_leaves_the_others_served() -> None:
    """It is named in a remark."""
    planned = desired(service(points=(point("192.0.2.1", mode="Proxy"), point("192.0.2.2")), ports=("443",)))
    assert set(redirects(planned)) == {"192.0.2.2:443"}
    assert of_service(planned).remarks == ("192.0.2.1: ipMode Proxy: kube-proxy does not short-circuit it",)


def test_a_hostname_alone_is_skipped_and_named() -> None:
    """As AWS publishes its load balancers."""
    decision = of_service(desired(service(points=(point(hostname="lb.example.net"),))))
    assert (decision.verdict, decision.code) == (Verdict.SKIPPED, "HostnameOnly")
    assert "published by hostname (lb.example.net)" in decision.reason


def test_an_empty_status_is_skipped() -> None:
    """Until the provider gives an address."""
    decision = of_service(desired(service(points=())))
    assert (decision.verdict, decision.code) == (Verdict.SKIPPED, "NoAddress")


@pytest.mark.parametrize(
    "ip",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("169.254.169.254", "169.254.20.10", "169.254.66.9", "10.96.0.7", "10.244.1.9"),
        *("::1", "::", "::192.0.2.1", "::ffff:192.0.2.1", "64:ff9b::c000:201", "2002:c000:201::1"),
        *("192.0.0.192", "100.100.100.200", "168.63.129.16", "fd00:42::42", "fd00:c1::a9fe:a9fe"),
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
        *("fe80::1", "ff02::1", "fd68:6169:7270::9"),
    ],
)
def test_an_address_that_no_load_balancer_can_have_is_refused(ip: str) -> None:
    """A redirect of it would break the node itself."""
    planned = desired(service(ips=(ip,)))
    decision = of_service(planned)
    assert (decision.verdict, decision.code) == (Verdict.REFUSED, "BadAddress")
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


def test_an_impossible_address_leaves_the_others_served() -> None:
    """It is named in a remark."""
    planned = desired(service(ips=("127.0.0.1", "192.0.2.1"), ports=("443",)))
    assert set(redirects(planned)) == {"192.0.2.1:443"}
    assert of_service(planned).remarks == ("127.0.0.1: not redirected: it is loopback",)


def test_an_address_that_could_not_be_read_is_refused_with_what_was_written() -> None:
    """The remark is the reader's own."""
    problem = "status.loadBalancer.ingress[0].ip: 'x' is not an IP address"
    decision = of_service(desired(service(points=(), problems=(problem,))))
    assert (decision.verdict, decision.code, decision.remarks) == (Verdict.REFUSED, "BadAddress", (problem,))


@pytest.mark.parametrize(
    "points", [(), (point(hostname="lb"),), (point("192.0.2.1", mode="Proxy"),), (point("127.0.0.1"),)]
)
def test_what_is_not_served_leaves_no_trace(points: tuple[LoadBalancerPoint, ...]) -> None:
    """Neither address, listener nor redirect."""
    planned = desired(service(points=points))
    assert (planned.addresses, planned.listeners, planned.dnat.redirects) == ((), (), ())
    assert of_service(planned).relay_addresses == ()


def test_a_list_of_ranges_is_complete_in_both_families() -> None:
    """`loadBalancers.addressRanges` of IPv6 alone admits no IPv4 address, and the reverse."""
    found = service(
        ips=("192.0.2.1", "2001:db8::1", "2001:db8:1::1"),
        ports=("443",),
        cluster_ips=("10.96.0.7", "fd00:10:96::7"),
    )
    listed = "services: [{namespace: ingress, name: blue}]"
    planned = desired(found, options=config(f"loadBalancers: {{{listed}, addressRanges: [2001:db8::/48]}}"))
    assert set(redirects(planned)) == {"[2001:db8::1]:443"}
    assert {listener.bind.address.version for listener in planned.listeners} == {6}
    assert of_service(planned).remarks == (
        "192.0.2.1: not redirected: loadBalancers.addressRanges does not include it",
        "2001:db8:1::1: not redirected: loadBalancers.addressRanges does not include it",
    )
    planned = desired(found, options=config(f"loadBalancers: {{{listed}, addressRanges: [192.0.2.0/24]}}"))
    assert set(redirects(planned)) == {"192.0.2.1:443"}
