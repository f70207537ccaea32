"""Which load balancers count as sending the PROXY line."""

from nodeagent.model.desired import Verdict
from tests.plan.made_up import config, desired, of_service, service


def test_a_listed_service_is_served_and_says_in_which_version() -> None:
    """v1 unless the configuration says otherwise."""
    planned = desired(service())
    decision = of_service(planned)
    assert (decision.verdict, decision.code) == (Verdict.SERVED, "Listed")
    assert decision.reason == "PROXY v1: listed in loadBalancers.services"
    assert {listener.proxy for listener in planned.listeners} == {"v1"}


def test_version_2_is_spoken_where_the_list_says_so() -> None:
    """By every listener of the Service."""
    options = config("loadBalancers: {services: [{namespace: ingress, name: blue, proxyProtocol: v2}]}")
    planned = desired(service(), options=options)
    assert of_service(planned).reason == "PROXY v2: listed in loadBalancers.services"
    assert {listener.proxy for listener in planned.listeners} == {"v2"}


def test_a_service_that_is_not_listed_is_skipped() -> None:
    """Nothing of it is touched."""
    planned = desired(service("red"))
    decision = of_service(planned, "red")
    assert (decision.verdict, decision.code) == (Verdict.SKIPPED, "NotProxy")
    assert "not listed in loadBalancers.services" in decision.reason
    assert not planned.redirects
    assert not planned.addresses


def test_the_same_name_in_another_namespace_is_not_listed() -> None:
    """A Service is its namespace and its name."""
    options = config("loadBalancers: {services: [{namespace: other, name: blue}]}")
    assert of_service(desired(service(), options=options)).code == "NotProxy"


def test_ignore_is_stronger_than_services() -> None:
    """An administrator's no is a no."""
    entry = "[{namespace: ingress, name: blue}]"
    options = config(f"loadBalancers: {{services: {entry}, ignore: {entry}}}")
    decision = of_service(desired(service(), options=options))
    assert (decision.verdict, decision.code) == (Verdict.SKIPPED, "Ignored")
    assert decision.reason == "listed in loadBalancers.ignore"


def test_what_could_not_be_read_of_a_skipped_service_is_told() -> None:
    """Its remarks, beside the reason it is skipped."""
    planned = desired(service("red", problems=("spec.ports: 0 is no port number",)))
    assert of_service(planned, "red").remarks == ("spec.ports: 0 is no port number",)
