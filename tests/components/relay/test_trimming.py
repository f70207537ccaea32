"""How many connections each client keeps when all together have too many."""

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.relay.activation import fair_share


@given(st.lists(st.integers(1, 100)), st.integers(0, 500))
def test_a_fair_share_is_the_largest_that_fits(counts: list[int], most: int) -> None:
    share = fair_share(counts, most)
    assert sum(min(count, share) for count in counts) <= most or not share
    assert share >= max(counts, default=0) or sum(min(count, share + 1) for count in counts) > most
