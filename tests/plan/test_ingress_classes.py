"""Which load balancer an Ingress belongs to if its own status is empty: what its class is given to."""

import pytest

from nodeagent.model.desired import DecisionStatus, Desired
from nodeagent.model.objects import Ingress, IngressClass
from tests.plan.made_up import config, desired, hosts, ingress, of_name, point, relay_of, service

NAME = "www.example.com"
OTHER = "other.example.com"
NGINX = IngressClass("nginx", "k8s.io/ingress-nginx")
TRAEFIK = IngressClass("traefik", "traefik.io/ingress-controller")
GREEN = point("192.0.2.2")
WITH_CLASS = "ingressClasses: [{class: %s, namespace: ingress, name: %s}]"


def new(ingress_class: str | None = "nginx") -> Ingress:
    """An Ingress whose controller has not reported anything yet."""
    return ingress(NAME, points=(), ingress_class=ingress_class)


def two(*found: Ingress | IngressClass, options: str = "") -> Desired:
    """A cluster of two PROXY load balancers."""
    balancers = service(), service("green", ips=("192.0.2.2",))
    return desired(*balancers, *found, options=config(balancers=options))


def served_by(planned: Desired) -> str:
    """The Service that the name went to."""
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
    """In this order."""
    assert served_by(two(*found, options=WITH_CLASS % ("nginx", "green"))) == "green"


def test_of_several_default_classes_none_is_the_default() -> None:
    """It is unknown which one was meant."""
    classes = (IngressClass("nginx", default=True), IngressClass("other", default=True))
    planned = two(new(None), *classes, options=WITH_CLASS % ("nginx", "green"))
    assert of_name(planned, NAME).code == "UnknownLoadBalancer"


def test_a_class_given_to_a_service_that_is_none_is_skipped_and_names_it() -> None:
    """The option is named, too."""
    decision = of_name(two(new(), options=WITH_CLASS % ("nginx", "missing")), NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "UnknownLoadBalancer")
    for named in ("loadBalancers.ingressClasses", "nginx", "Service ingress/missing"):
        assert named in decision.reason


def test_where_nothing_speaks_against_it_the_only_proxy_load_balancer_is_meant() -> None:
    """No Ingress reports anything; or this one is of no class."""
    assert served_by(desired(service(), new("traefik"))) == "blue"
    classless = desired(service(), ingress(OTHER, name="other", ingress_class="nginx"), new(None))
    assert served_by(classless) == "blue"
