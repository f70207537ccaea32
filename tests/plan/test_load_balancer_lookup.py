from dataclasses import replace
from ipaddress import ip_address

import pytest

from nodeagent.model.desired import DecisionStatus, Desired
from nodeagent.model.objects import EXCLUDE, PROXY_PROTOCOL, ControllerRoute, Ingress, IngressClass, ObjectRef
from tests.plan.made_up import (
    ALL,
    FACTS,
    answered,
    config,
    desired,
    gateway,
    hosts,
    ingress,
    listener_set,
    of_name,
    parent,
    point,
    relay_of,
    route,
    service,
)

NAME = "www.example.com"
PROXY = {PROXY_PROTOCOL: "v1"}


def test_of_several_the_only_listed_one_is_meant() -> None:
    """Another namespace can't make a load balancer that an administrator listed."""
    tenants = service("red", namespace="tenant", ips=("192.0.2.3",), created=-9, annotations=PROXY)
    only = config(proxies=("blue",))
    planned = desired(service(), tenants, ingress(NAME, points=()), options=only)
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


@pytest.mark.parametrize("edited", ["load balancer", "claim", "class"])
def test_what_is_served_is_not_moved_by_what_others_create_edit_or_age(edited: str) -> None:
    """A trusted name of an object without a status, and DNS does not confirm it."""
    own = ingress(NAME, points=())
    unlisted = config(proxies=())
    first = service(annotations=PROXY)
    before = desired(first, own, options=unlisted)
    relay = relay_of(before)[4]
    assert hosts(before) == [f"{relay} {NAME}"]
    facts = replace(FACTS, standing_names={NAME: frozenset({ip_address(relay)})})
    theirs = service("red", namespace="tenant", ips=("192.0.2.3",), created=-9, annotations=PROXY)
    others = {
        "load balancer": (),
        "claim": (ingress(NAME, name="old", namespace="tenant", created=-8, points=(point("192.0.2.3"),)),),
        "class": (ingress("x.example.com", namespace="tenant", created=-8, points=(point("192.0.2.3"),)),),
    }[edited]
    after = desired(first, own, theirs, *others, facts=facts, options=unlisted)
    assert f"{relay} {NAME}" in hosts(after)
    assert [line for line in hosts(after) if line.endswith(NAME)] == [f"{relay} {NAME}"]


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


def test_dns_chooses_among_several_where_the_status_is_empty() -> None:
    """Also for a name that is trusted without: the administrator trusts the name, not the guess."""
    planned = desired(service(), service("green", ips=("192.0.2.2",), created=-1), ingress(NAME, points=()))
    decision = of_name(planned, NAME)
    assert (decision.load_balancer, decision.code) == (None, "UnknownLoadBalancer")
    assert hosts(planned) == []
    assert planned.questions[NAME].addresses >= {ip_address("192.0.2.1"), ip_address("192.0.2.2")}
    facts = answered(NAME, "192.0.2.2")
    planned = desired(service(), service("green", ips=("192.0.2.2",)), ingress(NAME, points=()), facts=facts)
    assert hosts(planned) == [f"{relay_of(planned, 'green')[4]} {NAME}"]


def test_an_empty_status_without_a_proxy_load_balancer_is_skipped() -> None:
    decision = of_name(desired(service("red"), ingress(NAME, points=())), NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "NoProxyLoadBalancer")


def test_a_proxy_load_balancer_that_is_not_served_counts_as_the_only_one() -> None:
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


OTHER = "other.example.com"
NGINX = IngressClass("nginx", "k8s.io/ingress-nginx")
TRAEFIK = IngressClass("traefik", "traefik.io/ingress-controller")
WITH_CLASS = "ingressClasses: [{class: %s, namespace: ingress, name: %s}]"


def new(ingress_class: str | None = "nginx") -> Ingress:
    return ingress(NAME, points=(), ingress_class=ingress_class)


def two(*found: Ingress | IngressClass, options: str = "") -> Desired:
    balancers = service(), service("green", ips=("192.0.2.2",))
    return desired(*balancers, *found, options=config(balancers=options))


def served_by(planned: Desired) -> str:
    decision = of_name(planned, NAME)
    assert decision.status is DecisionStatus.SERVED, decision.reason
    assert decision.load_balancer is not None
    assert f"{relay_of(planned, decision.load_balancer.name)[4]} {NAME}" in hosts(planned)
    return decision.load_balancer.name


@pytest.mark.parametrize(
    "found",
    [
        (new(),),
        (ingress(NAME, points=(), annotations={"kubernetes.io/ingress.class": "nginx"}),),
        (new(None), IngressClass("nginx", default=True), TRAEFIK),
    ],
    ids=["spec", "annotation", "default class"],
)
def test_the_class_is_that_of_the_spec_or_the_annotation_or_the_default(
    found: tuple[Ingress | IngressClass, ...],
) -> None:
    assert served_by(two(*found, options=WITH_CLASS % ("nginx", "green"))) == "green"


def test_of_several_default_classes_none_is_the_default() -> None:
    classes = (IngressClass("nginx", default=True), IngressClass("other", default=True))
    planned = two(new(None), *classes, options=WITH_CLASS % ("nginx", "green"))
    assert of_name(planned, NAME).code == "UnknownLoadBalancer"


def test_a_class_given_to_a_service_that_is_none_is_skipped_and_names_it() -> None:
    decision = of_name(two(new(), options=WITH_CLASS % ("nginx", "missing")), NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "UnknownLoadBalancer")
    for named in ("loadBalancers.ingressClasses", "nginx", "Service ingress/missing"):
        assert named in decision.reason


def test_where_nothing_speaks_against_it_the_only_proxy_load_balancer_is_meant() -> None:
    """No Ingress reports anything; or this one is of no class."""
    assert served_by(desired(service(), new("traefik"))) == "blue"
    classless = desired(service(), ingress(OTHER, name="other", ingress_class="nginx"), new(None))
    assert served_by(classless) == "blue"


CONTROLLER = "traefik.io/ingress-controller"
TWO = (service(), service("green", ips=("192.0.2.2",)))


def test_a_gateway_may_report_a_hostname() -> None:
    """In any case, as DNS has it."""
    services = (service(points=(point("192.0.2.1", hostname="lb.example.net"),)), TWO[1])
    planned = desired(*services, gateway(points=(point(hostname="LB.example.net."),)), route(NAME))
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]


def test_the_service_that_was_made_for_a_gateway_has_its_name() -> None:
    """Where the status says nothing, or something that no Service has."""
    made = service("green", ips=("192.0.2.2",), gateway="public")
    for points in ((), (point("198.51.100.9"),)):
        mine = gateway(namespace="ingress", points=points)
        planned = desired(service(), made, mine, route(NAME, to=[parent(namespace="ingress")]))
        assert hosts(planned) == [f"{relay_of(planned, 'green')[4]} {NAME}"]


def test_envoy_gateways_service_is_found_from_its_own_namespace() -> None:
    """It names the Gateway's namespace; a Gateway of that name elsewhere is another one."""
    made = replace(service("green", ips=("192.0.2.2",), gateway="public"), gateway_namespace="infra")
    planned = desired(service(), made, gateway(points=()), route(NAME))
    assert hosts(planned) == [f"{relay_of(planned, 'green')[4]} {NAME}"]
    elsewhere = gateway(namespace="ingress", points=())
    decision = of_name(
        desired(service(), made, elsewhere, route(NAME, to=[parent(namespace="ingress")])), NAME
    )
    assert (decision.load_balancer, decision.code) == (None, "UnknownLoadBalancer")


def test_a_gateway_of_another_namespace_is_not_the_one_that_the_service_was_made_for() -> None:
    """The label holds within its namespace."""
    made = service("green", ips=("192.0.2.2",), gateway="public")
    decision = of_name(desired(service(), made, gateway(points=()), route(NAME)), NAME)
    assert (decision.load_balancer, decision.code) == (None, "UnknownLoadBalancer")


def test_unreadable_parts_of_a_gateway_are_reported_once() -> None:
    bad = gateway(points=(), problems=("status.addresses[0].value: 'x' is not an IP address",))
    planned = desired(service(), bad, route(NAME), route("b.example.com", name="b"))
    assert of_name(planned, NAME).code == "BadStatus"
    assert planned.remarks == (f"Gateway infra/public: {bad.problems[0]}",)


@pytest.mark.parametrize("whose", ["HTTPRoute", "Gateway", "ListenerSet"])
def test_the_owner_of_a_route_a_listener_set_or_a_gateway_can_keep_its_names_out(whose: str) -> None:
    annotations = {EXCLUDE: "true"}
    nothing: dict[str, str] = {}
    planned = desired(
        service(),
        gateway(allowed=ALL, annotations=annotations if whose == "Gateway" else nothing),
        listener_set(annotations=annotations if whose == "ListenerSet" else nothing),
        route(
            NAME,
            to=[parent("more", namespace="team", kind="ListenerSet")],
            annotations=annotations if whose == "HTTPRoute" else nothing,
        ),
    )
    decision = of_name(planned, NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "ExcludedByAnnotation")
    said = {"HTTPRoute": "", "Gateway": "Gateway infra/public: ", "ListenerSet": "ListenerSet team/more: "}
    assert decision.reason == f"{said[whose]}annotation nodeagent.io/exclude: true"
    assert hosts(planned) == []


def _ingress_route() -> ControllerRoute:
    return ControllerRoute(ObjectRef("IngressRoute", "web", "site"), CONTROLLER, hosts=(NAME,))


@pytest.mark.parametrize("by", ["public", CONTROLLER])
def test_a_controllers_own_objects_are_served_as_configured(by: str) -> None:
    options = config(balancers=f"ingressClasses: [{{class: {by}, namespace: ingress, name: green}}]")
    annotated = replace(_ingress_route(), annotations={"kubernetes.io/ingress.class": "public"})
    planned = desired(*TWO, annotated, options=options)
    assert hosts(planned) == [f"{relay_of(planned, 'green')[4]} {NAME}"]
