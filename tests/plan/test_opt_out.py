"""`nodeagent.io/exclude` on an Ingress: its owner keeps its names out of every hosts file."""

from dataclasses import replace

import pytest

from nodeagent.model.desired import Verdict
from nodeagent.model.objects import EXCLUDE, ObjectRef, Service
from tests.plan.made_up import desired, hosts, ingress, of_name, point, relay_of, service

NAME = "www.example.com"


@pytest.mark.parametrize("value", ["yes", "", " true", "tRUE", "on\n"])
def test_a_value_that_is_no_boolean_excludes_and_is_shown(value: str) -> None:
    """Its author did not want the default."""
    planned = desired(service(), ingress(NAME, annotations={EXCLUDE: value}))
    decision = of_name(planned, NAME)
    assert (decision.verdict, decision.code) == (Verdict.SKIPPED, "ExcludedByAnnotation")
    assert f"{value!a} is neither true nor false" in decision.reason
    assert hosts(planned) == []


@pytest.mark.parametrize(("excluded_at", "written"), [(0, False), (2, True)])
def test_the_oldest_ingress_of_a_name_decides_whether_it_is_excluded(
    excluded_at: int, *, written: bool
) -> None:
    """A solver that exists for minutes restores no hostname; a newer object takes no hostname away."""
    planned = desired(
        service(),
        ingress(NAME, created=excluded_at, annotations={EXCLUDE: "true"}),
        ingress(NAME, name="solver", created=1),
    )
    assert bool(hosts(planned)) is written


@pytest.mark.parametrize("newer", [(), (service("green", ips=("192.0.2.2",), created=9),)])
def test_a_newer_load_balancer_makes_no_veto_of_an_older_excluded_ingress(newer: tuple[Service, ...]) -> None:
    """The excluded one's status names the load balancer; the other one has no status, so DNS can choose."""
    excluded = replace(
        ingress(NAME, points=(point("192.0.2.1"),), annotations={EXCLUDE: "true"}),
        ref=ObjectRef("Ingress", "team", "site"),
    )
    planned = desired(service(), *newer, excluded, ingress(NAME, points=(), created=1))
    assert hosts(planned) == [f"{relay_of(planned)[4]} {NAME}"]
