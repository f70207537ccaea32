"""Failed parts are tried again on their own, less and less often, and forgotten once they succeed."""

from nodeagent.agent.reconciler import Retries


def test_a_part_that_fails_over_and_over_waits_up_to_a_minute() -> None:
    """Each on its own; a success is reported once."""
    retries = Retries()
    for expected in [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]:
        retries.failed("hosts", 100.0)
        assert expected * 0.8 <= retries.due_at["hosts"] - 100.0 <= expected * 1.2
    retries.failed("dnat", 100.0)
    assert retries.due(101.3) == {"dnat"}
    assert retries.due(200.0) == {"hosts", "dnat"}
    assert retries.succeeded("hosts")
    assert not retries.succeeded("hosts")
    retries.failed("hosts", 100.0)
    assert retries.due(101.3) == {"hosts", "dnat"}
