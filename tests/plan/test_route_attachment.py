"""To which listeners Routes are attached, and so which names they ask for: those that both have in common."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.objects import LabelRule
from nodeagent.plan.names.claims import Parents, common_hostnames, selects
from tests.cases import cases_of
from tests.plan.made_up import gateway, listener, parent, route

NAME = "www.example.com"


@pytest.mark.parametrize(("rule", "labels", "selected"), cases_of(__file__, "cases.yaml")["label_rules"])
def test_label_rules_are_those_of_kubernetes(rule: Any, labels: dict[str, str], *, selected: bool) -> None:  # noqa: ANN401
    key, operator, values = rule
    of_case = LabelRule(key, operator, tuple(values))
    assert selects([of_case], labels) is selected
    assert selects([of_case, LabelRule("missing", "Exists")], labels) is False


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
    common = common_hostnames(one, [other])
    in_both = stands_for(one, name) and stands_for(other, name)
    assert len(common) <= 1
    assert any(stands_for(each, name) for each in common) == in_both


def test_a_route_costs_its_hostnames_times_the_listeners_of_its_parents() -> None:
    """The bound of what one namespace's Routes may cost is counted in these."""
    parents = Parents([gateway(listener("a.example.com"), listener("b.example.com", name="b"))])
    assert parents.considered(route("a.example.com", "b.example.com", "c.example.com")).comparisons == 6
    assert parents.considered(route(NAME, to=[parent("other")])).comparisons == 0
