"""A planner that remembers decides as one that begins: whatever changes, and in whatever order."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from nodeagent.model.desired import Desired
from nodeagent.plan.planner import Planner, plan
from tests.plan.histories import History

EXAMPLES = settings(max_examples=2 * settings().max_examples, deadline=None)
MOMENTS = 12

# What a history changes too seldom, or in ways that decide nothing.


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
        same = [name for name, asked in after.questions.items() if asked == before.questions.get(name)]
        assert all(after.questions[name] is before.questions[name] for name in same)
        before = after
