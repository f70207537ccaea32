"""Failed parts are tried again on their own, less and less often, and forgotten once they succeed."""

from nodeagent.agent.retries import Retries


def test_a_part_that_fails_over_and_over_waits_up_to_a_minute() -> None:
    retries = Retries()
    pauses = [retries.failed("hosts", "no", 100.0).due - 100.0 for _ in range(12)]
    for pause, expected in zip(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60], strict=True):
        assert expected * 0.8 <= pause <= expected * 1.2


def test_parts_wait_each_on_its_own() -> None:
    retries = Retries()
    retries.failed("hosts", "no", 100.0)
    retries.failed("dnat", "no", 100.0)
    retries.failed("dnat", "no", 100.0)
    assert retries.due(101.3) == {"hosts"}
    assert retries.due(103.0) == {"hosts", "dnat"}


def test_a_success_is_reported_once_and_forgets_the_failure() -> None:
    retries = Retries()
    retries.failed("relay", "no haproxy", 100.0)
    recovered = retries.succeeded("relay")
    assert recovered is not None
    assert recovered.reason == "no haproxy"
    assert retries.succeeded("relay") is None
    assert not retries.failures


def test_the_time_of_the_first_failure_in_a_row_is_kept() -> None:
    retries = Retries()
    retries.failed("hosts", "one", 100.0)
    assert retries.failed("hosts", "two", 200.0).since == 100.0
