"""A lone event is applied at once, a burst in few passes, and passes leave half of the time free."""

from nodeagent.runtime.triggers import TriggerBatch, seconds_until_pass

LONG_AGO = (0.0, 0.02)


def _waiting(events: int, first: float, latest: float) -> TriggerBatch:
    return TriggerBatch(events, {}, first, latest)


def test_a_lone_event_after_a_quiet_time_is_applied_at_once() -> None:
    assert seconds_until_pass(_waiting(1, 100.0, 100.0), LONG_AGO, 100.0) <= 0


def test_drift_alone_counts_no_events_and_is_repaired_at_once() -> None:
    assert seconds_until_pass(_waiting(0, 100.0, 100.0), LONG_AGO, 100.0) <= 0


def test_a_burst_is_let_run_until_it_is_quiet() -> None:
    assert seconds_until_pass(_waiting(20, 100.0, 100.1), LONG_AGO, 100.1) > 0
    assert seconds_until_pass(_waiting(20, 100.0, 100.1), LONG_AGO, 100.15) <= 0


def test_a_burst_that_does_not_end_waits_half_a_second_and_no_longer() -> None:
    assert seconds_until_pass(_waiting(10_000, 100.0, 100.499), LONG_AGO, 100.499) > 0
    assert seconds_until_pass(_waiting(10_000, 100.0, 100.5), LONG_AGO, 100.5) <= 0


def test_after_a_pass_as_much_time_is_left_free() -> None:
    took_a_quarter = (100.0, 100.25)
    assert seconds_until_pass(_waiting(1, 100.1, 100.1), took_a_quarter, 100.25) == 0.25
    assert seconds_until_pass(_waiting(1, 100.1, 100.1), took_a_quarter, 100.5) == 0.0


def test_after_a_pass_of_many_seconds_an_event_waits_half_a_second_and_no_longer() -> None:
    took_seven_seconds = (100.0, 107.0)
    assert seconds_until_pass(_waiting(1, 101.0, 101.0), took_seven_seconds, 107.0) == 0.5
    assert seconds_until_pass(_waiting(1, 107.6, 107.6), took_seven_seconds, 107.6) <= 0.0
