"""Namespaces, and the backend in the one that the test runs in."""

from collections.abc import Iterator

import pytest

from nodeagent.appliers.dnat.nftables import NftablesBackend
from tests.appliers.dnat.network import Namespace
from tests.appliers.dnat.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A node, its pod, the outside; the test's own thread stands on the node."""
    with World() as made, made.node.inside():
        yield made


@pytest.fixture
def node() -> Iterator[Namespace]:
    """A bare namespace that the test's thread stands in."""
    namespace = Namespace()
    with namespace.inside():
        yield namespace
    namespace.close()


@pytest.fixture
def backend() -> NftablesBackend:
    """The nftables backend; it acts in the namespace of the thread that calls it."""
    return NftablesBackend()
