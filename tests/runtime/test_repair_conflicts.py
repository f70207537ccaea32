from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.component import ComponentName
from nodeagent.runtime.repair_conflicts import ConflictStatus, RepairConflicts
from tests.clock import Clock

PAUSES = st.lists(st.floats(0, 1500, allow_nan=False), max_size=60)


def repairs(pauses: list[float], component: ComponentName = "hosts") -> list[ConflictStatus]:
    clock = Clock()
    conflicts = RepairConflicts[ComponentName](clock)
    statuses = []
    for pause in pauses:
        clock.now += pause
        statuses.append(conflicts.repaired(component))
    return statuses


def test_the_fifth_within_a_minute_is_one_and_each_further_repair_waits_twice_as_long() -> None:
    statuses = repairs([1] * 18)
    delays = [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, *[300] * 5]
    assert [status.delay for status in statuses] == delays
    assert [status.is_news for status in statuses] == [False] * 4 + [True] * 10 + [False] * 4
    assert str(statuses[3]) == ""
    assert str(statuses[4]) == (
        "another program keeps reverting this: 5 repairs in 4 s; the next repair waits 1 s"
    )


def test_parts_are_judged_apart() -> None:
    conflicts = RepairConflicts[ComponentName](Clock())
    for _ in range(5):
        conflicts.repaired("hosts")
    assert conflicts.repaired("dnat").delay == 0
    assert conflicts.conflicting() == {"hosts"}


def test_the_wait_runs_off_and_ten_minutes_without_a_repair_end_the_fight() -> None:
    clock = Clock()
    conflicts = RepairConflicts[ComponentName](clock)
    for _ in range(6):
        conflicts.repaired("relay")
    assert conflicts.remaining("relay") == 2
    assert conflicts.remaining("dnat") == 0
    clock.now += 1.5
    assert conflicts.remaining("relay") == 0.5
    clock.now += 597
    assert conflicts.remaining("relay") == 0
    assert conflicts.conflicting() == {"relay"}
    clock.now += 1.5
    assert conflicts.conflicting() == frozenset()
    status = conflicts.repaired("relay")
    assert (status.delay, status.repairs) == (0, 1)


@given(PAUSES)
def test_delays_are_bounded_and_news_exactly_when_they_grow(pauses: list[float]) -> None:
    before = 0.0
    for pause, status in zip(pauses, repairs(pauses), strict=True):
        assert status.delay == 0 or 1 <= status.delay <= 300
        if pause >= 600:
            before = 0.0
            assert status.repairs == 1
        assert status.delay >= before
        assert status.is_news == (status.delay > before)
        before = status.delay


@given(st.lists(st.floats(15.1, 599, allow_nan=False), max_size=60))
def test_repairs_far_enough_apart_never_are_a_fight(pauses: list[float]) -> None:
    assert not any(status.delay for status in repairs(pauses))


@given(st.floats(0, 0.2), st.integers(1, 400))
def test_repairs_that_wait_as_advised_become_less_frequent(undone_after: float, rounds: int) -> None:
    clock = Clock()
    conflicts = RepairConflicts[ComponentName](clock)
    for _ in range(rounds):
        clock.now += undone_after + conflicts.remaining("dnat")
        conflicts.repaired("dnat")
    elapsed = clock.now - 1000.0
    assert rounds <= 4 + 10 + elapsed / 300
