"""Alive and ready: the answer to a probe, moment by moment."""

from nodeagent.observe.status import Status
from tests.clock import Clock


def board(*components: str) -> tuple[Status, Clock]:
    clock = Clock()
    return Status(components, clock), clock


def test_alive_as_long_as_the_loop_gives_signs() -> None:
    """The bound is on the silence, not on the age of the agent: a component may wait for HAProxy."""
    health, clock = board()
    for _ in range(3):
        clock.now += 119
        assert health.alive().text == "alive: last report 119 s ago (limit: 120 s)\n"
        assert health.alive().ok
        health.heartbeat()
    clock.now += 121
    assert not health.alive().ok
    assert health.alive().text == "stuck: last report 121 s ago (limit: 120 s)\n"
    health.heartbeat()
    assert health.alive().ok


def test_an_agent_is_ready_after_its_first_sync_and_stays_ready() -> None:
    """Until then, the answer has the reasons."""
    health, clock = board("api", "hosts", "dnat")
    health.report("api", "connection refused")
    clock.now += 12
    assert not health.ready().ok
    assert health.ready().text == (
        "not ready: this process has not applied all components yet\n"
        "api: failed since 12 s: connection refused\n"
        "hosts: not yet\n"
        "dnat: not yet\n"
    )

    for component in ("api", "hosts", "dnat"):
        health.report(component, None)
    health.synced()
    assert health.ready().ok
    assert health.ready().text == "ready\napi: ok\nhosts: ok\ndnat: ok\n"

    health.report("dnat", "nft: Operation not permitted")
    assert health.ready().ok
    assert "dnat: failed since 0 s: nft: Operation not permitted\n" in health.ready().text


def test_the_time_of_a_failure_counts_from_the_first_in_a_row() -> None:
    """Retries do not set it back; success does."""
    health, clock = board("relay")
    health.report("relay", "no HAProxy answers")
    clock.now += 5
    health.report("relay", "still none")
    clock.now += 5
    assert "relay: failed since 10 s: still none\n" in health.ready().text

    health.report("relay", None)
    clock.now += 5
    health.report("relay", "gone again")
    assert "relay: failed since 0 s: gone again\n" in health.ready().text


def test_an_error_can_not_forge_the_line_of_another_part() -> None:
    """Errors of many lines are shown on one, whatever characters they have."""
    health, _ = board("dnat", "hosts")
    health.report("dnat", "nft says:\n  bad\r\n\nhosts: ok\x1b[2J\u202e")
    health.waits_for = "evil\nhosts: ok"

    lines = health.ready().text.splitlines()
    assert lines == [
        "not ready: evil\\nhosts: ok",
        "dnat: failed since 0 s: nft says:; bad; hosts: ok\\x1b[2J\\u202e",
        "hosts: not yet",
    ]
