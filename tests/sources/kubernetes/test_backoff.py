import pytest

from nodeagent.backoff import Backoff


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
