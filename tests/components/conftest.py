from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.components.dnat.network import Namespace


@pytest.fixture
def node(as_root: None) -> Iterator[Namespace]:
    with closing(Namespace()) as namespace, namespace.inside():
        yield namespace
