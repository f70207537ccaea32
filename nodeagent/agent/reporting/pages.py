"""The pages that the agent shows: /healthz, /readyz, /metrics."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from nodeagent.agent.reporting.health import Answer, HealthBoard
from nodeagent.agent.reporting.metrics import CONTENT_TYPE, Metrics

_TEXT = "text/plain; charset=utf-8"


class Page(Struct, frozen=True):
    """An HTTP answer."""

    status: int
    content_type: str
    body: bytes


Pages = Mapping[str, Callable[[], Page]]
"""Path to what makes the page; it is called from a thread of the server's, for each request."""


def pages(board: HealthBoard, metrics: Metrics) -> Pages:
    """The three pages; probes get 200 for yes and 503 for no."""
    return {
        "/healthz": lambda: probe_page(board.alive()),
        "/readyz": lambda: probe_page(board.ready()),
        "/metrics": lambda: metrics_page(metrics.exposition()),
    }


def metrics_page(exposition: bytes) -> Page:
    """A scrape's answer as a page."""
    return Page(200, CONTENT_TYPE, exposition)


def misdirected() -> Page:
    """Says that the name asked for is not this machine's; nothing of the request comes back."""
    return Page(421, _TEXT, b"ask by address, as localhost, or by this node's own name\n")


def not_found(known: Pages) -> Page:
    """Says which pages there are."""
    return Page(404, _TEXT, f"no such page; there are {', '.join(known)}\n".encode())


def probe_page(answer: Answer) -> Page:
    """A probe's answer as a page: 200 for yes, 503 for no."""
    return Page(200 if answer.ok else 503, _TEXT, answer.text.encode("utf-8", "backslashreplace"))
