"""Which names a listener and a Route have in common: the API's own examples, and what always holds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.plan.claims.route_claims import common_hostnames, intersection

LABELS = ("a", "b", "example", "com")
names = st.lists(st.sampled_from(LABELS), min_size=1, max_size=4).map(".".join)
hostnames = st.one_of(names, names.map("*.{}".format))


def stands_for(hostname: str, name: str) -> bool:
    """Whether a name is one of those that a hostname matches, compared label by label."""
    if not hostname.startswith("*."):
        return hostname == name
    suffix, labels = hostname[2:].split("."), name.split(".")
    return len(labels) > len(suffix) and labels[-len(suffix) :] == suffix


@pytest.mark.parametrize(
    ("listener", "route", "common"),
    [
        # HTTPRoute.spec.hostnames: a listener with test.example.com.
        ("test.example.com", [], ["test.example.com"]),
        ("test.example.com", ["test.example.com"], ["test.example.com"]),
        ("test.example.com", ["*.example.com"], ["test.example.com"]),
        ("test.example.com", ["other.example.com"], []),
        # A listener with *.example.com.
        ("*.example.com", [], ["*.example.com"]),
        ("*.example.com", ["*.example.com"], ["*.example.com"]),
        ("*.example.com", ["test.example.com"], ["test.example.com"]),
        ("*.example.com", ["foo.test.example.com"], ["foo.test.example.com"]),
        ("*.example.com", ["example.com"], []),
        ("*.example.com", ["test.example.net"], []),
        # What does not match is passed over, the rest is served.
        ("*.example.com", ["test.example.com", "test.example.net"], ["test.example.com"]),
        ("test.example.com", ["test.example.net", "test.example.com"], ["test.example.com"]),
        # A wildcard within another; the label boundary.
        ("*.example.com", ["*.foo.example.com"], ["*.foo.example.com"]),
        ("*.foo.example.com", ["*.example.com"], ["*.foo.example.com"]),
        ("*.foo.example.com", ["*.bar.example.com"], []),
        ("*.example.com", ["www.badexample.com"], []),
        # A listener without a hostname takes all that the Route names; neither names anything: no name.
        (None, ["a.example.com", "*.b.example.com"], ["a.example.com", "*.b.example.com"]),
        (None, [], []),
    ],
)
def test_the_examples_of_the_gateway_api(listener: str | None, route: list[str], common: list[str]) -> None:
    assert list(common_hostnames(listener, route)) == common


@given(hostnames, hostnames, names)
@settings(deadline=None)
def test_an_intersection_matches_exactly_the_names_of_both(one: str, other: str, name: str) -> None:
    """Never for more than either of them, and for no less."""
    common = intersection(one, other)
    in_both = stands_for(one, name) and stands_for(other, name)
    assert (common is not None and stands_for(common, name)) == in_both


@given(hostnames, hostnames)
@settings(deadline=None)
def test_it_does_not_matter_which_comes_first(one: str, other: str) -> None:
    assert intersection(one, other) == intersection(other, one)
    assert intersection(one, one) == one
