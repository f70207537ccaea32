"""The limits of what is given out: in total and for each namespace, the listed and then the oldest first."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.model.desired import Desired, Verdict
from nodeagent.model.facts import DnsAnswer, DnsOutcome, DnsReply
from nodeagent.model.objects import PROXY_PROTOCOL, Ingress, ObjectRef, Service
from tests.plan.made_up import FACTS, config, desired, hosts, ingress, of_name, point, service


def of(namespace: str, name: str, *, created: int, ports: tuple[str, ...] = ("80", "443")) -> Service:
    """An unlisted load balancer that sends PROXY, at an address of its own."""
    number = sum(f"{namespace}/{name}".encode()) % 250 + 1
    found = service(
        name,
        ips=(f"198.18.0.{number}",),
        ports=ports,
        created=created,
        annotations={PROXY_PROTOCOL: "v2"},
    )
    return replace(found, ref=ObjectRef("Service", namespace, name))


def verdicts(planned: Desired) -> dict[str, str]:
    """Path of each load balancer to its code, where it is refused; to `served` otherwise."""
    return {
        each.load_balancer.path: each.code if each.verdict is Verdict.REFUSED else each.verdict
        for each in planned.load_balancers
    }


def claiming(namespace: str, *names: str, created: int) -> Ingress:
    """An Ingress of any namespace."""
    found = ingress(*names, name=f"site{created}", created=created)
    return replace(found, ref=ObjectRef("Ingress", namespace, found.ref.name))


def test_listeners_in_total_are_the_oldest_ones() -> None:
    """Of all namespaces; one that does not fit leaves its room to a smaller one behind it."""
    options = config("limits: {listeners: 5}", proxies=())
    planned = desired(
        of("team-a", "old", created=0),
        of("team-b", "next", created=1),
        of("team-c", "late", created=2),
        of("team-d", "small", created=3, ports=("443",)),
        options=options,
    )
    assert verdicts(planned) == {
        "team-a/old": "served",
        "team-b/next": "served",
        "team-c/late": "TooManyListeners",
        "team-d/small": "served",
    }
    assert len(planned.listeners) == 5
    (reason,) = [each.reason for each in planned.load_balancers if each.load_balancer.name == "late"]
    assert "its 2 listeners would exceed the 5 of a node (limits.listeners)" in reason


def test_the_total_of_listeners_holds_for_listed_services_too_but_they_come_first() -> None:
    """HAProxy's descriptors don't know who is trusted."""
    options = config("limits: {listeners: 2}\nloadBalancers: {services: [{namespace: team-b, name: listed}]}")
    services = (of("team-a", "old", created=0), of("team-b", "listed", created=5))
    assert verdicts(desired(*services, options=options)) == {
        "team-a/old": "TooManyListeners",
        "team-b/listed": "served",
    }


def test_listeners_of_one_namespace_leave_the_others_theirs() -> None:
    """Its oldest are served, and so are younger ones in another namespace."""
    options = config("limits: {listenersPerNamespace: 3}", proxies=())
    planned = desired(
        of("team-a", "one", created=0),
        of("team-a", "two", created=1),
        of("team-a", "three", created=2, ports=("443",)),
        of("team-b", "young", created=9),
        options=options,
    )
    assert verdicts(planned) == {
        "team-a/one": "served",
        "team-a/two": "TooManyListeners",
        "team-a/three": "served",
        "team-b/young": "served",
    }
    (reason,) = [each.reason for each in planned.load_balancers if each.load_balancer.name == "two"]
    assert "would exceed the 3 of namespace team-a (limits.listenersPerNamespace)" in reason


def test_a_listed_service_takes_nothing_of_its_namespaces_share() -> None:
    """An administrator named it."""
    options = config(
        "limits: {listenersPerNamespace: 2}\nloadBalancers: {services: [{namespace: team-a, name: one}]}"
    )
    planned = desired(of("team-a", "one", created=0), of("team-a", "two", created=1), options=options)
    assert verdicts(planned) == {"team-a/one": "served", "team-a/two": "served"}


def test_hostnames_in_total_are_the_oldest_ones() -> None:
    """Of all namespaces; a hostname that is claimed twice counts once."""
    planned = desired(
        service(),
        claiming("team-a", "a.example.com", "b.example.com", created=0),
        claiming("team-b", "b.example.com", "c.example.com", created=1),
        claiming("team-c", "d.example.com", created=2),
        options=config("limits: {hostnames: 3}"),
    )
    assert {line.split()[1] for line in hosts(planned)} == {
        "a.example.com",
        "b.example.com",
        "c.example.com",
    }
    left = of_name(planned, "d.example.com")
    assert (left.verdict, left.code) == (Verdict.REFUSED, "TooManyHostnames")
    assert left.reason == "3 hostnames come first (limits.hostnames): DNAT alone serves this one"


def test_a_hostname_that_nothing_confirms_takes_no_place_of_the_total() -> None:
    """Else a few namespaces full of names that don't exist would refuse every younger one."""
    missing = DnsReply(DnsOutcome.NXDOMAIN)
    answer = DnsReply(DnsOutcome.ADDRESSES, (ip_address("192.0.2.1"),))
    made_up = [f"{number}.example.net" for number in range(3)]
    dns = {name: DnsAnswer(missing, missing) for name in made_up}
    planned = desired(
        service(),
        claiming("team-a", *made_up, "unasked.example.net", created=0),
        claiming("team-b", "shop.example.net", created=1),
        facts=replace(FACTS, dns={**dns, "shop.example.net": DnsAnswer(answer, answer)}),
        options=config("limits: {hostnames: 1}"),
    )
    assert of_name(planned, "shop.example.net").code == "Verified"
    assert of_name(planned, made_up[0]).code == "NoSuchName"
    assert planned.questions.keys() == {*made_up, "unasked.example.net", "shop.example.net"}


@pytest.mark.parametrize("excluded", ["localhost", "not a name", "*.example.com"])
def test_a_hostname_that_is_never_written_takes_no_place(excluded: str) -> None:
    """Else anyone could use up the total with nonsense."""
    planned = desired(
        service(),
        claiming("team-a", excluded, created=0),
        claiming("team-b", "a.example.com", created=1),
        options=config("limits: {hostnames: 1}"),
    )
    assert of_name(planned, "a.example.com").verdict is Verdict.SERVED


def test_each_namespace_has_a_share_of_hostnames_of_its_own() -> None:
    planned = desired(
        service(),
        *(claiming("team-a", f"a{number}.example.com", created=number) for number in range(3)),
        claiming("team-b", "b.example.com", created=9),
        options=config("limits: {hostnamesPerNamespace: 2}"),
    )
    assert {line.split()[1] for line in hosts(planned)} == {
        "a0.example.com",
        "a1.example.com",
        "b.example.com",
    }
    assert of_name(planned, "a2.example.com").code == "TooManyHostnamesInNamespace"


@pytest.mark.parametrize("limit", ["hostnames", "hostnamesPerNamespace"])
def test_a_load_balancer_that_is_created_later_brings_no_hostname_before_those_that_have_their_place(
    limit: str,
) -> None:
    """Though the claim is older: its status named an address that no Service had yet."""
    early = replace(
        ingress("early.example.com", name="early", points=(point("192.0.2.9"),), created=0),
        ref=ObjectRef("Ingress", "web", "early"),
    )
    later = ingress("a.example.com", "b.example.com", name="later", created=5)
    options = config(f"limits: {{{limit}: 2}}", proxies=("blue",))
    before = desired(service(), early, later, options=options)
    assert {line.split()[1] for line in hosts(before)} == {"a.example.com", "b.example.com"}
    taker = service("taker", ips=("192.0.2.9",), created=9, annotations={PROXY_PROTOCOL: "v1"})
    after = desired(service(), early, later, taker, options=options)
    assert {line.split()[1] for line in hosts(after)} == {"a.example.com", "b.example.com"}
    assert of_name(after, "early.example.com").code.startswith("TooManyHostnames")


def test_another_load_balancer_does_not_change_which_hostnames_a_namespace_over_its_limit_has() -> None:
    """With one, the load balancer of an Ingress without a status seems known; with two it is a guess."""
    told = ingress("a.example.com", "b.example.com", "c.example.com")
    guessed = ingress("d.example.com", "e.example.com", name="guessed", points=(), created=2)
    options = config("limits: {hostnamesPerNamespace: 3}")
    before = desired(service(created=4), told, guessed, options=options)
    after = desired(
        service(created=4), service("green", ips=("192.0.2.2",), created=9), told, guessed, options=options
    )
    assert len(hosts(before)) == 3
    assert hosts(after) == hosts(before)
