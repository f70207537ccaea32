"""A lone event is applied at once, a burst in few passes, and passes leave half of the time free."""

import pytest

from nodeagent.runtime.triggers import TriggerBatch, seconds_until_pass

LONG_AGO = (0.0, 0.02)
A_QUARTER = (100.0, 100.25)
SEVEN_SECONDS = (100.0, 107.0)


@pytest.mark.parametrize(
    ("waiting", "last_pass", "now", "seconds"),
    [
        pytest.param((1, 100.0, 100.0), LONG_AGO, 100.0, 0.0, id="a lone event after a quiet time"),
        pytest.param((0, 100.0, 100.0), LONG_AGO, 100.0, 0.0, id="drift alone counts no events"),
        pytest.param((20, 100.0, 100.1), LONG_AGO, 100.1, 0.05, id="a burst is let run"),
        pytest.param((20, 100.0, 100.1), LONG_AGO, 100.15, 0.0, id="until it is quiet"),
        pytest.param((10_000, 100.0, 100.499), LONG_AGO, 100.499, 0.001, id="one that does not end waits"),
        pytest.param((10_000, 100.0, 100.5), LONG_AGO, 100.5, 0.0, id="for half a second and no longer"),
        pytest.param((1, 100.1, 100.1), A_QUARTER, 100.25, 0.25, id="after a pass as much is left free"),
        pytest.param((1, 100.1, 100.1), A_QUARTER, 100.5, 0.0, id="and no more"),
        pytest.param((1, 101.0, 101.0), SEVEN_SECONDS, 107.0, 0.5, id="after a long pass half a second"),
        pytest.param((1, 107.6, 107.6), SEVEN_SECONDS, 107.6, 0.0, id="and no longer"),
    ],
)
def test_when_a_pass_is_due(
    waiting: tuple[int, float, float], last_pass: tuple[float, float], now: float, seconds: float
) -> None:
    events, first, latest = waiting
    waits = seconds_until_pass(TriggerBatch(events, {}, first, latest), last_pass, now)
    assert max(waits, 0.0) == pytest.approx(seconds)
