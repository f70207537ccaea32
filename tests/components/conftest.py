"""A namespace without anything in it."""

from collections.abc import Iterator

import pytest

from tests.components.dnat.network import Namespace


@pytest.fixture
def node(as_root: None) -> Iterator[Namespace]:
    """A bare namespace that the test's thread is in."""
    namespace = Namespace()
    with namespace.inside():
        yield namespace
    namespace.close()
