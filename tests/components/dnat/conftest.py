from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.components.dnat.iptables import IptablesBackend
from nodeagent.components.dnat.nftables import NftablesBackend
from nodeagent.components.dnat.state import DnatBackend
from tests.components.dnat.world import World


@pytest.fixture
def world(as_root: None) -> Iterator[World]:
    with World() as made, made.node.inside():
        yield made


@pytest.fixture(autouse=True)
def own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A lock file of the test's own: two tests at a time must not wait for each other."""
    path = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(path))
    return path


@pytest.fixture(params=[NftablesBackend, IptablesBackend], ids=["nftables", "iptables"])
def backend(request: pytest.FixtureRequest) -> DnatBackend:
    made: DnatBackend = request.param()
    return made
