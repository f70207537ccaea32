from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from nodeagent.sources.kubernetes.connection import Connection
from tests.apiserver import ApiServer, objects

from .watching import NODE, connected


@pytest.fixture(autouse=True)
def _no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's default belongs to the process: tests that ran before may have set it."""
    monkeypatch.setattr(client.Configuration, "_default", None)


@pytest.fixture
def api(api: ApiServer) -> ApiServer:
    api.store.create(objects.node(NODE))
    return api


@pytest.fixture
def connection(api: ApiServer, tmp_path: Path) -> Iterator[Connection]:
    with connected(api, tmp_path) as opened:
        yield opened
