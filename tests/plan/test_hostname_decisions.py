"""Which names are written to the hosts file, and why the others are not."""

from dataclasses import replace

import pytest

from nodeagent.model.addresses import canonical, covering, defect
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.objects import PROXY_PROTOCOL
from tests.cases import cases_of
from tests.plan.made_up import FACTS, config, desired, hosts, ingress, relay_of, service, standing_names
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
def test_a_suffix_covers_itself_and_what_is_below_it(name: str, suffix: str, covered: bool) -> None:
    assert covering(name, [suffix]) == (suffix if covered else None)
