"""A plan that would remove most of what is served waits for a minute, if the API's objects are its reason."""

from collections.abc import Callable
from ipaddress import ip_address

import pytest

from nodeagent.model.desired import Desired, HostsLine, LoadBalancerDecision, NameDecision, served
from nodeagent.model.objects import ObjectRef
from nodeagent.runtime.removal_guard import RemovalGuard
from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(clock: Clock) -> RemovalGuard:
    return RemovalGuard(clock)


def plan(names: int, *others: int) -> Desired:
    """A plan with so many hostnames of one namespace, and of others."""
    relay = ip_address("169.254.66.7")
    claims = [
        (f"n{number}.{namespace}.example.com", ObjectRef("Ingress", f"team{namespace}", "site"))
        for namespace, count in enumerate((names, *others))
        for number in range(count)
    ]
    return Desired(
        hosts=tuple(HostsLine(relay, name) for name, _ in claims),
        names=tuple(NameDecision(name, by, None, served("Verified", "")) for name, by in claims),
    )


def balancers(*counts: int) -> Desired:
    """A plan with so many load balancers of each namespace."""
    return Desired(
        load_balancers=tuple(
            LoadBalancerDecision(
                ObjectRef("Service", f"team{namespace}", f"lb{number}"), served("Annotated", "")
            )
            for namespace, count in enumerate(counts)
            for number in range(count)
        )
    )


def test_a_removal_of_most_is_held_for_a_minute_and_then_made(guard: RemovalGuard, clock: Clock) -> None:
    assert not guard.holds(plan(40), plan(40), "objects")
    assert guard.holds(plan(40), plan(19), "fewer objects")
    assert guard.reason.startswith("21 of 40 hostnames would be removed by one change of the API's objects")
    clock.pass_by(59)
    assert guard.holds(plan(40), plan(19), "fewer objects")
    clock.pass_by(1)
    assert not guard.holds(plan(40), plan(19), "fewer objects")
    assert (guard.until, guard.reason) == (None, "")


@pytest.mark.parametrize("made", [plan, balancers])
def test_what_one_namespace_removes_holds_back_no_change_of_others(
    guard: RemovalGuard, made: Callable[..., Desired]
) -> None:
    """Else a tenant with most of the hostnames could delete them, and create them again, all day."""
    assert not guard.holds(made(3000, 30, 2), made(0, 30, 2), "the tenant's are deleted")
    assert not guard.holds(made(3000, 30, 2), made(0, 16, 1), "and half of the others', on purpose")


@pytest.mark.parametrize("made", [plan, balancers])
def test_what_all_namespaces_lose_is_held_however_much_one_of_them_has(
    guard: RemovalGuard, made: Callable[..., Desired]
) -> None:
    assert guard.holds(made(3000, 30, 2), made(0, 10, 2), "an old backup")
    assert guard.holds(made(40, 1), made(10, 0), "another one")


def test_of_ten_minutes_one_is_held_however_often_objects_go_and_come_back(
    guard: RemovalGuard, clock: Clock
) -> None:
    """Else a tenant with most of the hostnames in two namespaces held back the others' changes all day."""
    before, held = plan(40, 40, 20), 0
    for second in range(1200):
        after = plan(0, 0, 20) if second % 50 else plan(40, 40, 20)
        if guard.holds(before, after, second):
            held += 1
        else:
            before = after
        clock.pass_by(1)
    assert 100 <= held <= 120


def test_objects_that_come_back_end_it(guard: RemovalGuard, clock: Clock) -> None:
    assert guard.holds(plan(40), plan(0), "none")
    clock.pass_by(30)
    assert not guard.holds(plan(40), plan(40), "all again")
    assert guard.until is None
    clock.pass_by(60)
    assert guard.holds(plan(40), plan(0), "none again")


def test_another_change_in_that_minute_does_not_prolong_it(guard: RemovalGuard, clock: Clock) -> None:
    assert guard.holds(plan(40), plan(10), "some")
    clock.pass_by(40)
    assert guard.holds(plan(40), plan(5), "fewer")
    clock.pass_by(20)
    assert not guard.holds(plan(40), plan(5), "fewer")


@pytest.mark.parametrize(("before", "after"), [(40, 20), (19, 0), (0, 0), (20, 40)])
def test_what_is_less_is_made_at_once(guard: RemovalGuard, before: int, after: int) -> None:
    assert not guard.holds(plan(before), plan(after), "objects")


def test_a_first_plan_and_one_that_dns_changed_are_made_at_once(guard: RemovalGuard) -> None:
    assert not guard.holds(None, plan(0), "objects")
    assert not guard.holds(plan(40), plan(0), "objects")
