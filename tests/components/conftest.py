from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.components.dnat.network import Namespace
from tests.components.hosts.samples import hosts_file
from tests.components.relay.node import KeptRelay


@pytest.fixture
def node(as_root: None) -> Iterator[Namespace]:
    with closing(Namespace()) as namespace, namespace.inside():
        yield namespace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A hosts file with the user's lines."""
    return hosts_file(tmp_path)


@pytest.fixture
def relays() -> KeptRelay:
    """It has not begun: the test's own namespace is the one in which it does."""
    return KeptRelay()
