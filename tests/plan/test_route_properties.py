"""What holds for every plan of a cluster with Routes, whatever they are."""

from dataclasses import replace
from random import Random
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.config.options import Config
from nodeagent.model.desired import Verdict
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.planner import plan
from tests import strategies

EXAMPLES = settings(deadline=None)
_Value = TypeVar("_Value")


@given(strategies.snapshots_with_routes, strategies.configs, st.randoms(use_true_random=False))
@EXAMPLES
def test_the_order_of_routes_and_gateways_does_not_matter(
    snapshot: Snapshot, config: Config, order: Random
) -> None:
    """The API lists objects in any order."""

    def shuffled(values: tuple[_Value, ...]) -> tuple[_Value, ...]:
        return tuple(order.sample(values, len(values)))

    other = replace(
        snapshot,
        ingresses=shuffled(snapshot.ingresses),
        ingress_classes=shuffled(snapshot.ingress_classes),
        gateways=shuffled(snapshot.gateways),
        routes=shuffled(snapshot.routes),
    )
    facts = Facts("node1")
    assert plan(other, facts, config) == plan(snapshot, facts, config)


@given(strategies.snapshots_with_routes, strategies.facts, strategies.configs)
@EXAMPLES
def test_routes_are_held_to_what_ingresses_are_held_to(
    snapshot: Snapshot, facts: Facts, config: Config
) -> None:
    """Only allowed names are written, each once; every decision has a reason a person can read."""
    planned = plan(snapshot, facts, config)
    assert len(set(planned.hosts)) == len(planned.hosts)
    for line in planned.hosts:
        assert any(f".{line.name}".endswith(f".{suffix}") for suffix in config.hosts.allow)
        assert line.name not in facts.node_names | facts.api_server_names
    served = [decision.name for decision in planned.names if decision.verdict is Verdict.SERVED]
    assert sorted(served) == sorted({line.name for line in planned.hosts})
    assert all(decision.reason and decision.reason.isprintable() for decision in planned.names)
