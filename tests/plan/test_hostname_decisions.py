"""Which names are written to the hosts file, and why the others are not."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.model.addresses import canonical, covering, defect
from nodeagent.model.desired import DecisionStatus
from nodeagent.model.objects import PROXY_PROTOCOL
from tests.cases import cases_of
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
    standing_names,
)
from tests.plan.tenant_worlds import ABSURD_HOSTS

NAME = "www.example.com"


@pytest.mark.parametrize("host", [host for host in ABSURD_HOSTS if host[0:1] != "\u212a"], ids=ascii)
def test_an_absurd_host_is_refused_and_hides_no_other(host: str) -> None:
    planned = desired(service(), ingress(host, NAME))
    refused, served = sorted(planned.names, key=lambda decision: decision.name == NAME)
    assert (refused.status, refused.code) == (DecisionStatus.REFUSED, "BadName")
    assert refused.reason.startswith("never written: ")
    assert served.status is DecisionStatus.SERVED
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


def test_an_older_load_balancer_that_takes_a_relay_address_gets_no_hostname_that_is_written_there() -> None:
    """Anyone who has an old Service can choose its name so that its relay address is another one's."""
    options, own = config("relay: {ipv4: 169.254.66.0/29}", proxies=[]), {PROXY_PROTOCOL: "v2"}
    mine = service(created=9, annotations=own), ingress(NAME, created=9)
    before = desired(*mine, options=options)
    at = {each.address: each.load_balancer for each in before.addresses}
    facts = replace(FACTS, standing_names=standing_names(before), standing_at=at)
    older = (service(f"t{number}", ips=["192.0.2.9"], annotations=own) for number in range(99))
    taker = next(
        each for each in older if relay_of(desired(each, options=options), each.ref.name) == relay_of(before)
    )
    claim = ingress(NAME, name="old", namespace="tenant", points=taker.points)
    after = desired(*mine, taker, claim, facts=facts, options=options)
    assert relay_of(after) != relay_of(before) == relay_of(after, taker.ref.name)
    assert hosts(after) == [f"{relay_of(after)[4]} {NAME}"]


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
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "UnknownLoadBalancer")
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


@pytest.mark.parametrize(
    "name",
    ["a", "example.com", "xn--bcher-kva.example", "1.example.com", "a-b.c", "1e2.example", "x" * 63 + ".com"],
)
def test_a_dns_name_has_no_defect(name: str) -> None:
    """RFC 1123 allows a digit in front."""
    assert defect(name) is None


def test_a_name_has_at_most_253_characters() -> None:
    """RFC 1035, without the final dot."""
    longest = "x." * 126 + "x"
    assert defect(longest) is None
    assert defect(f"x{longest}") is not None


@pytest.mark.parametrize("host", ["k.example.com", "K.Example.COM", "k.example.com.", "\u212a.example.com"])
def test_one_name_has_one_form(host: str) -> None:
    """Neither case nor a final dot makes another; the Kelvin sign's lower case is k."""
    assert canonical(host) == "k.example.com"


@pytest.mark.parametrize(("name", "suffix", "covered"), cases_of(__file__, "cases.yaml")["covered"])
def test_a_suffix_covers_itself_and_what_is_below_it(name: str, suffix: str, covered: bool) -> None:  # noqa: FBT001
    assert covering(name, [suffix]) == (suffix if covered else None)
