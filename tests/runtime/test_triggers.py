"""No call is lost between the threads that leave word and the loop that takes it."""

import threading

from nodeagent.runtime.triggers import Triggers


def test_calls_are_counted_and_taken_once() -> None:
    triggers = Triggers(clock=iter([1.0, 2.0, 3.0]).__next__)
    triggers.cluster_changed()
    triggers.cluster_changed()
    triggers.drifted("hosts", "edited")
    waiting = triggers.waiting()
    assert waiting is not None
    assert (waiting.events, waiting.first, waiting.latest) == (2, 1.0, 3.0)
    calls = triggers.take()
    assert (calls.events, dict(calls.drift), calls.first) == (2, {"hosts": "edited"}, 1.0)
    assert triggers.waiting() is None
    assert triggers.take().first is None


def test_the_first_sight_of_drift_is_kept() -> None:
    triggers = Triggers()
    triggers.drifted("dnat", "table deleted")
    triggers.drifted("dnat", "element deleted")
    assert triggers.take().drift == {"dnat": "table deleted"}


def test_what_comes_before_the_wait_is_not_slept_over() -> None:
    triggers = Triggers()
    triggers.cluster_changed()
    assert triggers.wait(10.0)
    triggers.take()
    triggers.wake()
    assert triggers.wait(10.0)
    assert triggers.waiting() is None


def test_a_call_from_another_thread_ends_the_wait() -> None:
    triggers = Triggers()
    caller = threading.Timer(0.05, triggers.cluster_changed)
    caller.start()
    assert triggers.wait(30.0)
    caller.join()
    assert triggers.take().events == 1
