"""A planner that remembers decides as one that begins: whatever changes, and in whatever order."""

from dataclasses import fields, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.plan.planner import Planner, plan
from tests.plan.histories import History

EXAMPLES = settings(max_examples=2 * settings().max_examples, deadline=None)
MOMENTS = 12

# What a history changes too seldom, or in ways that decide nothing.
_RARE = {"listener_sets", "namespaces", "config_maps", "other_cluster_ips", "standing_names", "node_name"}
_INPUTS = [each.name for kind in (Snapshot, Facts) for each in fields(kind) if each.name not in _RARE]


@given(st.integers(0, 10**9))
@EXAMPLES
def test_warm_equals_fresh(seed: int) -> None:
    """After each step of a random history of the cluster, the node, DNS and the configuration."""
    history = History(seed)
    planner, config = None, None
    for moment in history.moments(MOMENTS):
        if planner is None or moment.config is not config:
            planner, config = Planner(moment.config), moment.config
        warm = planner.plan(moment.snapshot, moment.facts)
        assert warm == plan(moment.snapshot, moment.facts, moment.config)
        history.remember(warm)


@given(st.integers(0, 10**9))
@example(139)  # a Service changes, but not what is decided for it
@EXAMPLES
def test_what_is_decided_as_before_stays_the_same_object(seed: int) -> None:
    """Others find what changed by that: the log, the hosts file, DNS verification."""
    history = History(seed)
    planner, config, before = None, None, Desired()
    for moment in history.moments(MOMENTS):
        if planner is None or moment.config is not config:
            planner, config, before = Planner(moment.config), moment.config, Desired()
        after = planner.plan(moment.snapshot, moment.facts)
        for earlier, now in (
            (before.names, after.names),
            (before.hosts, after.hosts),
            (before.load_balancers, after.load_balancers),
            (before.questions, after.questions),
        ):
            if earlier and earlier == now:
                assert earlier is now
        known = {decision: decision for decision in before.names}
        assert all(known.get(decision, decision) is decision for decision in after.names)
        before = after


@pytest.mark.parametrize("name", _INPUTS)
def test_the_histories_show_a_planner_that_misses_changes_of_an_input(name: str) -> None:
    """The property above would not hold for it: one of few histories is enough."""
    assert any(_differs(History(seed), name) for seed in range(300))


def _differs(history: History, name: str) -> bool:
    """Whether a plan is another one for a planner that always sees one input as it was at first."""
    planner, config, first = None, None, None
    for moment in history.moments(MOMENTS):
        if planner is None or moment.config is not config:
            planner, config = Planner(moment.config), moment.config
        first = first or moment
        missed = [
            replace(now, **{name: getattr(then, name)}) if hasattr(now, name) else now
            for now, then in ((moment.snapshot, first.snapshot), (moment.facts, first.facts))
        ]
        stale = planner.plan(*missed)  # type: ignore[arg-type] # a snapshot, and facts
        if stale != plan(moment.snapshot, moment.facts, moment.config):
            return True
        history.remember(stale)
    return False
