"""Which load balancer an Ingress belongs to."""

from ipaddress import ip_address

import pytest

from nodeagent.model.desired import DecisionStatus
from tests.plan.made_up import (
    FACTS,
    answered,
    config,
    desired,
    hosts,
    ingress,
    of_name,
    point,
    relay_of,
    service,
)

NAME = "www.example.com"


def test_an_empty_status_with_two_proxy_load_balancers_means_the_first_that_is_served() -> None:
    """The oldest; a newer one, or an older one without an address, takes nothing away."""
    older = service("green", points=(), created=-1)
    planned = desired(
        older, service(), service("red", ips=("192.0.2.3",), created=1), ingress(NAME, points=())
    )
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


@pytest.mark.parametrize("mode", ["Proxy", None])
@pytest.mark.parametrize("asked", [True, False])
def test_a_newer_load_balancer_takes_no_hostname_of_one_that_needs_no_relay(
    mode: str | None, *, asked: bool
) -> None:
    """The hostname is trusted, its object has no status, the newer one alone is served: DNS must say so."""
    older = service(points=(point("192.0.2.1" if mode else None, hostname="lb.example.net", mode=mode),))
    newer = service("green", ips=("192.0.2.2",), created=1)
    facts = answered(NAME, "192.0.2.1") if asked else FACTS
    planned = desired(older, newer, ingress(NAME, points=()), facts=facts)
    decision = of_name(planned, NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "LoadBalancerNotServed")
    assert decision.load_balancer == older.ref
    assert not planned.hosts
    assert ip_address("192.0.2.2") in planned.questions[NAME].addresses
    facts = answered(NAME, "192.0.2.2")
    planned = desired(older, newer, ingress(NAME, points=()), facts=facts)
    assert hosts(planned) == [f"{relay_of(planned, 'green')[4]} {NAME}"]


@pytest.mark.parametrize("older", ["claim", "served", "unserved", "unserved first", "other class"])
def test_reports_of_older_objects_do_not_veto_what_dns_confirms(older: str) -> None:
    """An older claim for another load balancer, a class that leads there or nowhere, another one's class."""
    unserved = older.startswith("unserved")
    lost = service("green", ips=("192.0.2.2",), created=-9, cluster_ips=() if unserved else ("10.96.0.8",))
    also = ingress(name="also", created=-4, ingress_class="nginx" if older == "unserved first" else "y")
    of_class = {"claim": None, "other class": "x"}.get(older, "nginx")
    claimed = (NAME,) if older == "claim" else ()
    tells = ingress(*claimed, name="older", points=[point("192.0.2.2")], created=-5, ingress_class=of_class)
    facts = answered(NAME, "192.0.2.1")
    mine = ingress(NAME, points=(), ingress_class=None if older == "claim" else "nginx")
    planned = desired(lost, service(), tells, also, mine, facts=facts, options=config("hosts: {allow: []}"))
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]
    (decision,) = (each for each in planned.names if each.claimed_by == mine.ref)
    assert decision.code == "Verified"


def test_dns_chooses_among_several_where_the_status_is_empty() -> None:
    """Also for a name that is trusted without: the administrator trusts the name, not the guess."""
    planned = desired(service(), service("green", ips=("192.0.2.2",)), ingress(NAME, points=()))
    assert of_name(planned, NAME).load_balancer == service().ref
    assert planned.questions[NAME].addresses >= {ip_address("192.0.2.1"), ip_address("192.0.2.2")}
    facts = answered(NAME, "192.0.2.2")
    planned = desired(service(), service("green", ips=("192.0.2.2",)), ingress(NAME, points=()), facts=facts)
    assert hosts(planned) == [f"{relay_of(planned, 'green')[4]} {NAME}"]


def test_the_reason_of_a_hostname_is_bounded_however_many_classes_there_are() -> None:
    """Anyone can make up a class, and each hostname without a status has its reason."""
    told = [
        ingress(name=f"t{each}", ingress_class=f"{each}{'x' * 4000}", created=-1 - each) for each in range(50)
    ]
    planned = desired(service(), *told, ingress(NAME, points=(), ingress_class="nginx"))
    decision = of_name(planned, NAME)
    assert decision.code == "OtherClass"
    assert len(decision.reason) < 1000


def test_an_empty_status_without_a_proxy_load_balancer_is_skipped() -> None:
    """There is nothing to relay."""
    decision = of_name(desired(service("red"), ingress(NAME, points=())), NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "NoProxyLoadBalancer")


def test_a_proxy_load_balancer_that_is_not_served_counts_as_the_only_one() -> None:
    """Its own reason is the name's reason."""
    decision = of_name(desired(service(points=()), ingress(NAME, points=())), NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "LoadBalancerNotServed")
    assert decision.reason.startswith("Service ingress/blue: status.loadBalancer is empty")


def test_a_status_that_could_not_be_read_is_not_taken_for_an_empty_one() -> None:
    """It names a load balancer; which one is unknown."""
    problem = "status.loadBalancer.ingress[0]: 'x' is not an IP address"
    decision = of_name(desired(service(), ingress(NAME, points=(), problems=(problem,))), NAME)
    assert (decision.status, decision.code, decision.reason) == (DecisionStatus.SKIPPED, "BadStatus", problem)


@pytest.mark.parametrize("ages", [(0, 5), (5, 0)])
def test_where_two_services_share_an_address_the_one_that_is_relayed_is_meant(ages: tuple[int, int]) -> None:
    """Whichever is older, and whatever their names."""
    planned = desired(service("red", created=ages[0]), service(created=ages[1]), ingress(NAME))
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


def test_a_service_without_a_tcp_port_claims_no_hostname() -> None:
    """Even if it has the address of an old status: that of UDP alone is no load balancer of hostnames."""
    udp = service("green", ips=("198.51.100.1",), ports=("53/UDP",))
    older = ingress(NAME, name="older", points=(point("198.51.100.1"),), created=-5)
    planned = desired(service(), udp, older, ingress(NAME))
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


def test_of_two_claims_that_dns_confirms_the_older_counts_even_without_a_status() -> None:
    teaching = ingress("t.example.com", name="t", ingress_class="nginx", created=-5)
    mine = ingress(NAME, points=(), ingress_class="x")
    younger = ingress(NAME, name="younger", points=(point("192.0.2.2"),), created=5)
    facts = answered(NAME, "192.0.2.1", "192.0.2.2")
    balancers = (service(), service("green", ips=("192.0.2.2",)))
    planned = desired(*balancers, teaching, mine, younger, facts=facts, options=config("hosts: {allow: []}"))
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]
