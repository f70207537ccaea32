import time

from nodeagent.agent.wake_up import Pace, WakeUp


def test_a_wait_is_ended_by_what_woke_it_also_before_and_by_nothing_else() -> None:
    wake_up, began = WakeUp(), time.monotonic()
    wake_up.wait(0.05)
    wake_up.trigger()
    wake_up.wait(60)
    wake_up.wait(0.05)
    assert 0.1 <= (later := time.monotonic()) - began < 30
    wake_up.trigger()
    assert (wake_up.take() or later) < later, "when it was triggered first"
    assert wake_up.take() is None


def test_passes_that_follow_each_other_take_half_of_the_time_and_a_lone_one_never_waits() -> None:
    pace, now, passes = Pace(), 1000.0, 0
    while now < 1010.0:
        now = max(now, pace.next_at())
        pace.made(now, 0.1)
        passes, now = passes + 1, now + 0.1
    assert 45 <= passes <= 55
    assert pace.next_at() <= now + 0.2
    pace.made(now + 60, 3.0)
    assert pace.next_at() <= now + 63, "a first pass of seconds"
    for seconds in (90, 80):
        pace.hold(now + seconds)
    assert pace.next_at() == now + 90
