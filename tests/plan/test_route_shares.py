"""What Routes cost: a change of a Gateway concerns its own, and a namespace has a share."""

from dataclasses import replace

from nodeagent.model.objects import ObjectRef, Route
from nodeagent.plan.route_claims import Parents
from tests.plan.gateways import ALL, gateway, listener, listener_set, parent, route
from tests.plan.made_up import at, desired, service

GATEWAYS = tuple(
    gateway(
        *(listener(f"*.l{each}.g{number}.example.com", name=f"l{each}") for each in range(64)),
        name=f"g{number}",
    )
    for number in range(32)
)


def dear(namespace: str, created: int) -> Route:
    """A Route that is compared with 32 x 64 listeners, for each of 16 hostnames."""
    hostnames = [f"{namespace}{created}-{each}.l1.g1.example.com" for each in range(16)]
    found = route(*hostnames, to=[parent(each.ref.name) for each in GATEWAYS])
    return replace(found, ref=ObjectRef("HTTPRoute", namespace, f"dear{created}"), created=at(created))


def test_a_change_of_a_gateway_concerns_the_routes_of_it_and_of_its_listener_sets() -> None:
    gateways = (gateway(name="changed", allowed=ALL), gateway(name="other"))
    added = listener_set(to=parent("changed"))
    routes = (
        route("a.example.com", name="a", to=[parent("changed")]),
        route("b.example.com", name="b", to=[parent("other")]),
        route("c.example.com", name="c", to=[parent("more", kind="ListenerSet", namespace="team")]),
    )
    before = Parents.of(gateways, [added], [])
    changed = replace(gateways[0], listeners=(listener("*.example.com"),))
    after = Parents.of((changed, gateways[1]), [added], [])
    assert [each.ref.name for each in after.touched(before, routes)] == ["a", "c"]
    assert after.touched(after, routes) == []


def test_a_namespace_whose_routes_cost_too_much_loses_the_youngest_and_no_other_does() -> None:
    tenant = [dear("tenant", created) for created in range(20)]
    other = route("www.l1.g1.example.com", to=[parent("g1")])
    planned = desired(service(), *GATEWAYS, *reversed(tenant), replace(other, created=at(99)))
    claimed = {decision.claimed_by.path for decision in planned.names}
    assert claimed == {"web/site", *(f"tenant/dear{created}" for created in range(16))}
    assert planned.remarks[-1] == (
        "namespace tenant: 4 of its Routes are not considered: older ones take 500000 comparisons of "
        "hostnames with listeners, or more"
    )
