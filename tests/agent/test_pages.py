"""The pages over real HTTP."""

import pytest

from nodeagent.runtime.health import HealthBoard
from nodeagent.runtime.telemetry_server import pages
from tests.agent.happening import everything
from tests.agent.scraping import read
from tests.runtime.serving import get, serving


def test_health_and_readiness_answer_200_or_503_with_the_reasons() -> None:
    """As the kubelet's probes read them."""
    board = HealthBoard(["hosts"])
    with serving(pages(board, everything().exposition)) as service:
        starting = get(service.bound, "/readyz")
        assert (starting.status, starting.body) == (503, board.ready().text)
        assert "hosts: not yet" in starting.body

        board.became_writer()
        board.component_ok("hosts")
        board.synced()
        assert get(service.bound, "/readyz").status == 200
        assert get(service.bound, "/healthz").status == 200


def test_metrics_come_in_the_format_of_prometheus() -> None:
    """Parsed by its own parser."""
    with serving(pages(HealthBoard([]), everything().exposition)) as service:
        reply = get(service.bound, "/metrics?from=a%20query")

    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert read(reply.body.encode()).value("nodeagent_writer") == 1


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_head_gives_the_headers_alone(path: str) -> None:
    """With the length of the body that GET would give."""
    with serving(pages(HealthBoard([]), everything().exposition)) as service:
        head = get(service.bound, path, method="HEAD")

    assert head.status in {200, 503}
    assert int(head.headers["Content-Length"]) > 0
    assert head.body == ""
