from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from .server import ApiServer


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """Give a server that listens on loopback."""
    with ApiServer() as server:
        yield server


@pytest.fixture
def official(api: ApiServer, tmp_path: Path) -> Iterator[client.ApiClient]:
    """Give the official client, set up from a kubeconfig file as any program does it."""
    config.load_kube_config(str(api.write_kubeconfig(tmp_path / "kubeconfig")))
    with client.ApiClient() as connected:
        yield connected
        connected.rest_client.pool_manager.clear()
