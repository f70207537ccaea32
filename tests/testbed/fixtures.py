"""Fixtures for every test that lives in the little world; import them into a conftest.py."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.testbed.kube_proxy import KUBE_PROXY_KINDS
from tests.testbed.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the testbed makes namespaces: run it as root")


@pytest.fixture(scope="module", params=KUBE_PROXY_KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One world a test module and kind of kube-proxy; tests leave it as they found it."""
    if os.geteuid() != 0:
        pytest.skip("the testbed makes namespaces: run it as root")
    with World(kube_proxy=request.param) as standing:
        yield standing
