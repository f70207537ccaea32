"""Load balancers that publish only a hostname: what DNS answers for it verifies the hostnames they serve."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.config.options import Config
from nodeagent.model.decisions import DecisionStatus
from nodeagent.model.desired import Desired
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsQuestion, DnsReply, Facts
from nodeagent.model.objects import ObjectRef, RelayEndpoint, RelayService, Service, ServicePort, Snapshot
from nodeagent.plan.planner import Planner, plan
from tests.plan.made_up import (
    FACTS,
    NODE,
    config,
    desired,
    hosts,
    ingress,
    of_name,
    of_service,
    point,
    service,
)

OWN = "lb-1.elb.example.org"
NAME = "www.example.net"
ADDRESSES = ("203.0.113.7", "203.0.113.8")


def options(
    more: str = "", *, entry: str = "hostnameOnly: true, proxyProtocol: v2", sections: str = ""
) -> Config:
    listed = f"services: [{{namespace: ingress, name: blue, {entry}}}{more}]"
    return config(f"loadBalancers: {{{listed}}}\nhosts: {{verify: dns}}\n{sections}")


def named(**differing: object) -> Service:
    return replace(service(points=(point(hostname=OWN),)), **differing)  # type: ignore[arg-type]


def told(*addresses: str, outcome: DnsOutcome = DnsOutcome.ADDRESSES) -> DnsAnswer:
    trouble = "" if outcome.tells else "no answer in time"
    reply = DnsReply(outcome, tuple(map(ip_address, addresses)), trouble)
    return DnsAnswer(reply, reply if outcome.tells else None)


def knowing(**answers: DnsAnswer) -> Facts:
    """Facts in which DNS said so of the load balancer's own hostname and of the one that is claimed."""
    names = {"own": OWN, "claimed": NAME}
    return replace(FACTS, dns={names[which]: answer for which, answer in answers.items()})


CLAIM = ingress(NAME, points=[point(hostname=OWN)])
KNOWN = knowing(own=told(*ADDRESSES), claimed=told(ADDRESSES[1]))


def planned(facts: Facts = KNOWN, of: Service | None = None, given: Config | None = None) -> Desired:
    return desired(of or named(), CLAIM, facts=facts, options=given or options())


def test_dns_is_asked_for_its_own_hostname_and_every_address_matters() -> None:
    """Before any hostname is claimed; the addresses that it has matter for what is claimed."""
    own = DnsQuestion(frozenset(), "ingress", ObjectRef("Service", "ingress", "blue"), every=True)
    assert desired(named(), options=options()).questions == {OWN: own}
    assert planned(given=options(entry="proxyProtocol: v2")).questions == {}
    questions = planned().questions
    assert questions.keys() == {OWN, NAME}
    assert questions[NAME].addresses >= set(map(ip_address, ADDRESSES))
    assert of_service(planned()).addresses == tuple(map(ip_address, ADDRESSES))
    itself = desired(named(), ingress(OWN, points=[point(hostname=OWN)]), facts=KNOWN, options=options())
    assert itself.questions == {OWN: own}
    assert of_name(itself, OWN).code == "Verified"


def test_a_written_hostname_stays_until_dns_has_answered_for_the_load_balancer() -> None:
    """After a restart nothing is known of either; what DNS says then counts."""
    relay = of_service(planned()).relay_addresses
    unknown = replace(knowing(claimed=told("198.51.100.99")), standing_names={NAME: frozenset(relay)})
    assert of_name(planned(unknown), NAME).code == "KeptUnasked"
    silent = {**unknown.dns, OWN: told(outcome=DnsOutcome.TIMEOUT)}
    assert of_name(planned(replace(unknown, dns=silent)), NAME).code == "Kept"
    known = replace(unknown, dns={**unknown.dns, OWN: told(*ADDRESSES)})
    assert of_name(planned(known), NAME).code == "NotVerified"


def test_a_planner_that_remembers_follows_the_addresses() -> None:
    """The load balancer moves, and the hostname after it: verified before, not in between, verified after."""
    planner = Planner(options())
    snapshot = Snapshot(services=(named(),), ingresses=(CLAIM,), node=NODE)
    new = told("203.0.113.99")
    for facts, code in (
        (KNOWN, "Verified"),
        (knowing(own=new, claimed=told(*ADDRESSES)), "NotVerified"),
        (knowing(own=new, claimed=new), "Verified"),
    ):
        desire = planner.plan(snapshot, facts)
        assert of_name(desire, NAME).code == code
        assert desire == plan(snapshot, facts, options())


def test_an_address_in_its_status_is_served_as_ever() -> None:
    of = named(points=(point("192.0.2.1", hostname=OWN),))
    assert planned(of=of) == planned(of=of, given=options(entry="proxyProtocol: v2"))
    assert len(planned(of=of).dnat.redirects) == 2


@pytest.mark.parametrize("hostname", ["*.example.org", "a b", "x" * 300, "203.0.113.7"])
def test_a_hostname_that_is_none_is_not_asked_for(hostname: str) -> None:
    desire = planned(of=named(points=(point(hostname=hostname),)))
    assert of_service(desire).code == "HostnameOnly"
    assert OWN not in desire.questions


@pytest.mark.parametrize(
    ("cluster_ips", "relays"), [(("10.96.0.7", "fd00:10:96::7"), 2), (("fd00:10:96::7",), 1), ((), 0)]
)
def test_it_is_relayed_in_the_families_of_its_cluster_ips(cluster_ips: tuple[str, ...], relays: int) -> None:
    """The same on every node, whatever DNS says there."""
    of = named(cluster_ips=tuple(map(ip_address, cluster_ips)))
    for facts in (KNOWN, FACTS):
        decision = of_service(planned(facts, of))
        assert len(decision.relay_addresses) == relays
        assert (decision.code == "NoClusterIP") is (not relays)


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.66.9", "10.96.0.7", "168.63.129.16"])
def test_what_is_never_redirected_verifies_nothing(address: str) -> None:
    """Loopback, the relay's own range, a ClusterIP, a cloud's metadata."""
    facts = knowing(own=told(address), claimed=told(address))
    assert of_name(planned(facts), NAME).status is DecisionStatus.REFUSED


def test_at_the_nodes_own_addresses_dns_verifies_nothing() -> None:
    own = str(NODE.addresses[0])
    assert of_name(planned(knowing(own=told(own), claimed=told(own))), NAME).code == "ResolvesToNode"


_HAIRPIN_PROXY = ObjectRef("Service", "hairpin-proxy", "hairpin-proxy")


@pytest.mark.parametrize("publishes_an_address", [False, True])
def test_an_existing_relay_service_serves_it_by_hosts_lines(*, publishes_an_address: bool) -> None:
    """As hairpin-proxy did; and any load balancer while none of the relay Service's pods is ready."""
    relay = RelayService(_HAIRPIN_PROXY, (ip_address("10.96.0.99"),), (ServicePort("https", "TCP", 443),))
    pod = RelayEndpoint(ip_address("10.244.1.9"), "https", 443, "node1", ready=not publishes_an_address)
    balancer = service() if publishes_an_address else named()
    claim = replace(CLAIM, points=balancer.points)
    snapshot = Snapshot(
        services=(balancer,), ingresses=(claim,), node=NODE, relay_service=relay, relay_endpoints=(pod,)
    )
    facts = replace(KNOWN, dns={NAME: told("192.0.2.1")}) if publishes_an_address else KNOWN
    desire = plan(snapshot, facts, options(sections="relay: {kind: service}"))
    assert hosts(desire) == [f"10.96.0.99 {NAME}"]
    assert desire.dnat.redirects == ()
    none_ready = f"no IPv4 endpoint of Service {_HAIRPIN_PROXY.path} is ready"
    assert any(none_ready in remark for remark in of_service(desire).remarks) is publishes_an_address
