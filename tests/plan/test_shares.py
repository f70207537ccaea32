"""A namespace whose claims or Routes are far more than it can get costs the agent no more than its share."""

import random
from dataclasses import replace

import pytest

from nodeagent.config.options import LimitOptions
from nodeagent.model.objects import Ingress, Route, Snapshot
from nodeagent.plan.names.matching import ClaimPlanner
from tests.plan.made_up import config, desired, gateway, ingress, listener, parent, route, service

LIMITS = LimitOptions(hostnames_per_namespace=2500)
SHARE = 10_000
MANY = {size: tuple(f"h{number}.example.com" for number in range(size)) for size in (1, 20, 50, 5000)}


def claiming(namespace: str, number: int, size: int) -> Ingress:
    return ingress(*MANY[size], name=f"i{number}", namespace=namespace, created=number)


def considered(*ingresses: Ingress, limits: LimitOptions = LIMITS) -> set[tuple[str, int]]:
    """Path and size of the claims that a planner looks at which sees these objects first."""
    return set(shown(ClaimPlanner(limits), *ingresses))


def shown(planner: ClaimPlanner, *ingresses: Ingress) -> list[tuple[str, int]]:
    claimed, _ = planner.collect(Snapshot(ingresses=ingresses))
    return sorted((claim.ref.path, len(claim.names)) for claims in claimed.values() for claim in claims)


def test_the_youngest_claims_beyond_the_share_are_left_out() -> None:
    tenant = [claiming("tenant", number, 5000) for number in range(5)]
    other = claiming("other", 9, 5000)
    assert considered(*reversed(tenant), other) == {
        ("tenant/i0", 5000),
        ("tenant/i1", 5000),
        ("other/i9", 5000),
    }
    # A higher limit has a higher share.
    assert len(considered(*tenant, limits=LimitOptions(hostnames_per_namespace=5000))) == 4


def test_what_crosses_the_share_is_considered_and_nothing_is_reported() -> None:
    """Of three claims, the second fills the share: only the third is beyond it."""
    found = [claiming("tenant", number, 5000) for number in range(3)]
    found[1] = replace(found[1], hosts=(*MANY[5000], "one-more.example.com"))
    collector = ClaimPlanner(LIMITS)
    assert collector.collect(Snapshot(ingresses=tuple(found[:2])))[1] == []
    assert len(collector.collect(Snapshot(ingresses=tuple(found)))[1]) == 1


def test_a_plan_says_what_is_left_out_and_decides_no_hostname_of_it() -> None:
    ingresses = [claiming("tenant", number, 5000) for number in range(2)]
    late = ingress("late.example.com", namespace="tenant", created=9)
    planned = desired(service(), *ingresses, late, options=config("limits: {hostnamesPerNamespace: 2500}"))
    assert {decision.name for decision in planned.names} == set(MANY[5000])
    remark, expected = (
        planned.remarks[-1],
        ("namespace tenant: 1 ", f" {SHARE} ", "limits.hostnamesPerNamespace"),
    )
    assert all(word in remark for word in expected)


def test_a_low_limit_leaves_a_share_of_a_thousand() -> None:
    """So that a namespace's hostnames beyond `limits.hostnamesPerNamespace` have their reasons."""
    limits = LimitOptions(hostnames_per_namespace=1)
    tenant = [claiming("tenant", number, 50) for number in range(25)]
    assert len(considered(*tenant, limits=limits)) == 20


def test_the_same_claims_are_considered_whatever_was_there_before(
    soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With shares and claims a hundredth of the usual size: the rule is the same, and quick to try."""
    monkeypatch.setattr("nodeagent.plan.names.matching._FEWEST", SHARE // 100)
    limits = LimitOptions(hostnames_per_namespace=LIMITS.hostnames_per_namespace // 100)
    chance = random.Random(5)  # noqa: S311 - the same at each run, guards nothing
    collector = ClaimPlanner(limits)
    there: dict[str, Ingress] = {}
    left_out = 0
    for _ in range(1000 if soak else 80):
        number = chance.randrange(12)
        made = claiming(chance.choice("ab"), number, chance.choice((1, 20, 50)))
        if made.ref.path in there and chance.random() < 0.5:
            del there[made.ref.path]
        else:
            there[made.ref.path] = made
        ingresses = tuple(there[path] for path in sorted(there))
        seen = shown(collector, *ingresses)
        assert seen == sorted(considered(*ingresses, limits=limits))
        left_out += len(ingresses) - len(seen)
    assert left_out > 0


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
    to = [parent(each.ref.name) for each in GATEWAYS]
    return route(*hostnames, name=f"dear{created}", namespace=namespace, to=to, created=created)


def test_a_namespace_whose_routes_cost_too_much_loses_the_youngest_and_no_other_does() -> None:
    tenant = [dear("tenant", created) for created in range(20)]
    other = route("www.l1.g1.example.com", to=[parent("g1")], created=99)
    planned = desired(service(), *GATEWAYS, *reversed(tenant), other)
    claimed = {decision.claimed_by.path for decision in planned.names}
    assert claimed == {"web/site", *(f"tenant/dear{created}" for created in range(16))}
    assert all(word in planned.remarks[-1] for word in ("namespace tenant: 4 of its Routes", " 500000 "))
