"""Which load balancer serves a Route's names, and who may keep them out."""

from dataclasses import replace

import pytest

from nodeagent.model.desired import DecisionStatus
from nodeagent.model.objects import EXCLUDE, ControllerRoute, ObjectRef
from tests.plan.gateways import ALL, gateway, listener_set, parent, route
from tests.plan.made_up import config, desired, hosts, of_name, point, relay_of, service

NAME = "www.example.com"
TRAEFIK = "traefik.io/ingress-controller"
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
    """However many Routes it has."""
    bad = gateway(points=(), problems=("status.addresses[0].value: 'x' is not an IP address",))
    planned = desired(service(), bad, route(NAME), route("b.example.com", name="b"))
    assert of_name(planned, NAME).code == "BadStatus"
    assert planned.remarks == (f"Gateway infra/public: {bad.problems[0]}",)


@pytest.mark.parametrize("whose", ["HTTPRoute", "Gateway", "ListenerSet"])
def test_the_owner_of_a_route_a_listener_set_or_a_gateway_can_keep_its_names_out(whose: str) -> None:
    """The reason says whose annotation it is."""
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
    return ControllerRoute(ObjectRef("IngressRoute", "web", "site"), TRAEFIK, hosts=(NAME,))


@pytest.mark.parametrize("by", ["public", TRAEFIK])
def test_a_controllers_own_objects_are_served_as_configured(by: str) -> None:
    """By the class of their annotation, or by the controller."""
    options = config(balancers=f"ingressClasses: [{{class: {by}, namespace: ingress, name: green}}]")
    annotated = replace(_ingress_route(), annotations={"kubernetes.io/ingress.class": "public"})
    planned = desired(*TWO, annotated, options=options)
    assert hosts(planned) == [f"{relay_of(planned, 'green')[4]} {NAME}"]
