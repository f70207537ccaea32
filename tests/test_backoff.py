import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.backoff import Backoff, SubjectBackoff
from nodeagent.components.component import ComponentName
from tests.clock import Clock

PAUSES = st.lists(st.floats(0, 1500, allow_nan=False), max_size=60)


def delays(pauses: list[float]) -> list[float]:
    clock = Clock()
    left_alone = SubjectBackoff[ComponentName](clock)
    found = []
    for pause in pauses:
        clock.now += pause
        found.append(left_alone.wrote("hosts"))
    return found


def test_the_fifth_repair_within_a_minute_is_a_conflict_and_each_further_one_waits_twice_as_long() -> None:
    assert delays([1] * 18) == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, *[300] * 5]


def test_the_wait_runs_off_and_ten_minutes_without_a_repair_end_the_conflict() -> None:
    clock = Clock()
    left_alone = SubjectBackoff[ComponentName](clock)
    for _ in range(6):
        left_alone.wrote("relay")
    assert left_alone.until("relay") == clock.now + 2
    assert left_alone.until("dnat") == 0
    clock.now += 598
    assert left_alone.until("relay") == 0
    assert left_alone.conflicting() == {"relay"}
    clock.now += 2
    assert left_alone.conflicting() == frozenset()
    assert left_alone.wrote("relay") == 0


def test_what_is_reverted_at_once_waits_for_the_longer_of_both() -> None:
    """It has failed, and it is a repair: five of them are a conflict."""
    clock = Clock()
    left_alone = SubjectBackoff[ComponentName](clock)
    for wait in (1, 2, 4, 8, 16, 32, 64):
        left_alone.failed("dnat")
        delay = left_alone.wrote("dnat")
        assert left_alone.until("dnat") == clock.now + wait
        clock.now += wait
    assert delay == 64
    assert left_alone.conflicting() == {"dnat"}
    assert left_alone.succeeded("dnat")
    assert left_alone.conflicting() == {"dnat"}


@given(PAUSES)
def test_delays_are_bounded_and_grow_until_a_long_quiet(pauses: list[float]) -> None:
    before = 0.0
    for pause, delay in zip(pauses, delays(pauses), strict=True):
        assert delay == 0 or 1 <= delay <= 300
        assert delay >= before or pause >= 600
        before = delay


@given(st.lists(st.floats(15.1, 599, allow_nan=False), max_size=60))
def test_repairs_far_enough_apart_never_are_a_conflict(pauses: list[float]) -> None:
    assert not any(delays(pauses))


@given(st.floats(0, 0.2), st.integers(1, 400))
def test_repairs_that_wait_as_advised_become_less_frequent(undone_after: float, rounds: int) -> None:
    clock = Clock()
    left_alone = SubjectBackoff[ComponentName](clock)
    for _ in range(rounds):
        clock.now = max(clock.now, left_alone.until("dnat")) + undone_after
        left_alone.wrote("dnat")
    elapsed = clock.now - 1000.0
    assert rounds <= 4 + 10 + elapsed / 300


def test_waits_double_up_to_the_longest_and_restart_after_success() -> None:
    backoff = Backoff(0.5, 30.0, fraction=lambda: 1.0)
    assert [backoff.next() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    backoff.reset()
    assert backoff.next() == 0.5


def test_jitter_takes_away_half_at_most() -> None:
    backoff = Backoff(0.5, 30.0, fraction=lambda: 0.0)
    assert [backoff.next() for _ in range(3)] == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    ("asked", "wait"), [(0.0, 0.5), (0.1, 0.5), (7.0, pytest.approx(7.7)), (86400.0, pytest.approx(330.0))]
)
def test_what_the_server_asks_for_is_honored_within_reason(asked: float, wait: float) -> None:
    assert Backoff(0.5, 30.0, fraction=lambda: 1.0).next(asked) == wait
