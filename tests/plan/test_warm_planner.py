"""A planner that remembers decides as one that begins: whatever changes, and in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.plan.planner import Planner, plan
from tests.plan.histories import History

EXAMPLES = settings(max_examples=2 * settings().max_examples, deadline=None)
MOMENTS = 12


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
