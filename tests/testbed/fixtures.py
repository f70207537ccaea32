"""Fixtures for every test that uses the testbed; import them into a conftest.py."""

from collections.abc import Iterator
from itertools import product

import pytest

from tests.root import needs_root
from tests.testbed.addresses import STACKS, Stack
from tests.testbed.kube_proxy import KUBE_PROXY_KINDS, KubeProxyKind
from tests.testbed.world import World

__all__ = ["needs_root", "world"]

_USUAL: tuple[tuple[KubeProxyKind, Stack], ...] = (
    ("nftables", 4),
    ("iptables-legacy", 6),
    ("iptables-nft", "dual"),
)
"""Each kind and each stack once; `make test-matrix` takes all."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=() if each in _USUAL else pytest.mark.matrix)
        for each in product(KUBE_PROXY_KINDS, STACKS)
    ],
    ids=lambda param: f"{param[0]}, {param[1]}",
)
def world(as_root: None, request: pytest.FixtureRequest) -> Iterator[World]:
    """One world a test module, kind of kube-proxy and stack; tests leave it as they found it."""
    kube_proxy, family = request.param
    with World(kube_proxy=kube_proxy, family=family) as standing:
        yield standing
