"""To which listeners Routes are attached, and so which names they ask for: those that both have in common."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.desired import DecisionStatus
from nodeagent.model.objects import AllowedNamespaces, LabelRule, Namespace, ParentRef, Route
from nodeagent.plan.names.route_claims import Parents, common_hostnames, selects
from tests.cases import cases_of
from tests.plan.made_up import (
    ALL,
    SAME,
    Found,
    desired,
    gateway,
    ingress,
    listener,
    listener_set,
    of_name,
    parent,
    route,
    service,
)

NAME = "www.example.com"
TRUSTED = LabelRule("team", "In", ("web", "shop"))


def asked(*found: Found) -> set[str]:
    """The names by which a backend is reached through a listener."""
    names = desired(service(), *found).names
    return {decision.name for decision in names if decision.code != "NotAttached"}


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        (parent("other"), "Gateway infra/other does not exist, or has no listeners"),
        (parent(section="x"), "Gateway infra/public has no listener with that name or port"),
        (parent(section="tls"), "Gateway infra/public has no listener that accepts this kind"),
        (parent(section="own"), "Gateway infra/public accepts nothing from this namespace"),
        (parent(), "no listener that it is attached to has this hostname"),
        (parent(port=444), "Gateway infra/public does not accept it, according to its status"),
    ],
)
def test_a_route_that_is_attached_to_nothing_gets_the_reason(to: ParentRef, reason: str) -> None:
    """Its hostnames are no obstacle for others."""
    listeners = (
        listener("other.example.com"),
        listener(name="tls", protocol="TLS"),
        listener(name="own", allowed=SAME),
    )
    lost = route(NAME, to=[to], declined=[parent(port=444)])
    planned = desired(service(), gateway(*listeners), lost)
    decision = of_name(planned, NAME)
    assert (decision.status, decision.code) == (DecisionStatus.SKIPPED, "NotAttached")
    assert decision.reason == reason
    newer = ingress(NAME, created=9)
    assert of_name(desired(service(), gateway(*listeners), lost, newer), NAME).status is DecisionStatus.SERVED


def test_a_route_of_the_mesh_is_no_load_balancers_business() -> None:
    """It is attached to Services (GEP-1324)."""
    planned = desired(service(), gateway(), route(NAME, to=[parent("s", kind="Service", group="")]))
    assert planned.names == ()


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (parent(section="http"), {"http.example.com"}),
        (parent(section="https"), {"https.example.com"}),
        (parent(section="missing"), set()),
        (parent(port=80), {"http.example.com"}),
        (parent(port=81), set()),
        (parent(section="https", port=80), set()),
        (parent("other"), set()),
        (parent(namespace="web"), set()),
        (parent(kind="Service", group=""), set()),
        (parent(group="example.com"), set()),
    ],
)
def test_a_parent_ref_chooses_by_section_port_and_name(to: ParentRef, expected: set[str]) -> None:
    listeners = (
        listener("http.example.com", name="http", port=80, protocol="HTTP"),
        listener("https.example.com", name="https"),
    )
    assert asked(gateway(*listeners), route(to=[to])) == expected


@pytest.mark.parametrize(
    ("allowed", "namespace", "taken"),
    [
        (ALL, "web", True),
        (SAME, "web", False),
        (SAME, "infra", True),
        (AllowedNamespaces("None"), "infra", False),
        (AllowedNamespaces("Selector", (TRUSTED,)), "web", True),
        (AllowedNamespaces("Selector", (TRUSTED,)), "other", False),
        (AllowedNamespaces("Selector", (TRUSTED,)), "unknown", False),
        (AllowedNamespaces("Selector"), "other", True),
    ],
)
def test_a_listener_takes_routes_from_the_namespaces_it_allows(
    allowed: AllowedNamespaces, namespace: str, *, taken: bool
) -> None:
    """A namespace of which nothing is known is in no selection."""
    found = asked(
        gateway(listener(allowed=allowed)),
        route(NAME, namespace=namespace),
        Namespace("web", {"team": "web"}),
        Namespace("other", {"team": "other"}),
    )
    assert found == ({NAME} if taken else set())


@pytest.mark.parametrize(
    ("rule", "labels", "selected"),
    [
        (LabelRule("a", "In", ("1", "2")), {"a": "2"}, True),
        (LabelRule("a", "In", ("1", "2")), {"a": "3"}, False),
        (LabelRule("a", "In", ("1",)), {}, False),
        (LabelRule("a", "NotIn", ("1",)), {"a": "2"}, True),
        (LabelRule("a", "NotIn", ("1",)), {"a": "1"}, False),
        (LabelRule("a", "NotIn", ("1",)), {}, True),
        (LabelRule("a", "Exists"), {"a": ""}, True),
        (LabelRule("a", "Exists"), {"b": ""}, False),
        (LabelRule("a", "DoesNotExist"), {"b": ""}, True),
        (LabelRule("a", "DoesNotExist"), {"a": ""}, False),
    ],
)
def test_label_rules_are_those_of_kubernetes(
    rule: LabelRule, labels: dict[str, str], *, selected: bool
) -> None:
    assert selects([rule], labels) is selected
    assert selects([rule, LabelRule("missing", "Exists")], labels) is False


@pytest.mark.parametrize(("kind", "protocol", "kinds", "taken"), cases_of(__file__, "cases.yaml")["kinds"])
def test_a_listener_takes_the_kinds_of_its_protocol_that_it_lists(
    kind: str, protocol: str, kinds: tuple[str, ...], *, taken: bool
) -> None:
    """A protocol of a controller's own takes what is listed."""
    found = asked(gateway(listener(protocol=protocol, kinds=kinds)), route(NAME, kind=kind))
    assert found == ({NAME} if taken else set())


def test_a_parent_that_declines_the_route_has_it_not() -> None:
    other = parent("other")
    found = asked(
        gateway(listener("a.example.com")),
        gateway(listener("b.example.com"), name="other"),
        route(to=[parent(), other], declined=[parent()]),
    )
    assert found == {"b.example.com"}


def _of_set(namespace: str = "web") -> Route:
    return route(NAME, namespace=namespace, to=[parent("more", namespace="team", kind="ListenerSet")])


@pytest.mark.parametrize(
    ("allowed", "taken"), [(ALL, True), (SAME, False), (AllowedNamespaces("None"), False)]
)
def test_a_gateway_says_whose_listener_sets_it_takes(allowed: AllowedNamespaces, *, taken: bool) -> None:
    found = asked(gateway(listener("x.example.com"), allowed=allowed), listener_set(), _of_set())
    assert found == ({NAME} if taken else set())


def test_same_is_the_listener_sets_own_namespace() -> None:
    added = listener_set(listener(allowed=SAME))
    assert asked(gateway(allowed=ALL), added, _of_set(namespace="team")) == {NAME}
    assert asked(gateway(allowed=ALL), added, _of_set(namespace="infra")) == set()


def test_a_route_of_the_gateway_is_not_attached_to_what_a_listener_set_adds() -> None:
    """Anyone who adds listeners to a Gateway gets no other's Routes (GEP-1713)."""
    added = listener_set(listener("added.example.com"))
    assert asked(gateway(listener("own.example.com"), allowed=ALL), added, route()) == {"own.example.com"}


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
