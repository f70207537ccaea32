"""A namespace without anything in it."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.components.dnat.network import Namespace


@pytest.fixture
def node(as_root: None) -> Iterator[Namespace]:
    """A bare namespace that the test's thread is in."""
    with closing(Namespace()) as namespace, namespace.inside():
        yield namespace
