"""Which names a listener and a Route have in common: the API's own examples, and what always holds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.plan.route_claims import common_hostnames, intersection

LABELS = ("a", "b", "example", "com")
names = st.lists(st.sampled_from(LABELS), min_size=1, max_size=4).map(".".join)
hostnames = st.one_of(names, names.map("*.{}".format))


def stands_for(hostname: str, name: str) -> bool:
    """Whether a name is one of those that a hostname matches, compared label by label."""
    if not hostname.startswith("*."):
        return hostname == name
    suffix, labels = hostname[2:].split("."), name.split(".")
    return len(labels) > len(suffix) and labels[-len(suffix) :] == suffix


@given(hostnames, hostnames, names)
@settings(deadline=None)
def test_an_intersection_matches_exactly_the_names_of_both(one: str, other: str, name: str) -> None:
    """Never for more than either of them, and for no less."""
    common = intersection(one, other)
    in_both = stands_for(one, name) and stands_for(other, name)
    assert (common is not None and stands_for(common, name)) == in_both
    assert common_hostnames(one, [other]) == (() if common is None else (common,))


@given(hostnames, hostnames)
@settings(deadline=None)
def test_it_does_not_matter_which_comes_first(one: str, other: str) -> None:
    assert intersection(one, other) == intersection(other, one)
    assert intersection(one, one) == one
