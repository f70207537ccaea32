"""A simulated API server, and connections to it of several controllers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodeagent.sources.kubernetes.connection import Connection, connect
from tests.apiserver import ApiServer


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the machine's own cluster and proxies out."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def connecting(api: ApiServer, tmp_path: Path) -> Iterator[Callable[[], Connection]]:
    """Provide a new connection to the server at each call."""
    kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(connect(kubeconfig))
