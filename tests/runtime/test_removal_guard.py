"""A plan that would remove most of what is served waits for a minute, if the API's objects are its reason."""

from ipaddress import ip_address

import pytest

from nodeagent.model.desired import Desired, HostsLine
from nodeagent.runtime.removal_guard import RemovalGuard
from tests.coredns.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(clock: Clock) -> RemovalGuard:
    return RemovalGuard(clock)


def plan(names: int) -> Desired:
    """A plan with so many hostnames."""
    relay = ip_address("169.254.66.7")
    return Desired(hosts=tuple(HostsLine(relay, f"n{number}.example.com") for number in range(names)))


def test_a_removal_of_most_is_held_for_a_minute_and_then_made(guard: RemovalGuard, clock: Clock) -> None:
    assert not guard.holds(plan(40), plan(40), "objects")
    assert guard.holds(plan(40), plan(19), "fewer objects")
    assert guard.reason.startswith("21 of 40 hostnames would be removed by one change of the API's objects")
    clock.pass_by(59)
    assert guard.holds(plan(40), plan(19), "fewer objects")
    clock.pass_by(1)
    assert not guard.holds(plan(40), plan(19), "fewer objects")
    assert (guard.until, guard.reason) == (None, "")


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
