from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemonset import image_root
from tests.daemonset.deployment import Deploy, Deployment
from tests.daemonset.image_root import ImageRoot
from tests.testbed.world import World


@pytest.fixture(scope="session")
def image(as_root: None) -> Iterator[ImageRoot]:
    with image_root.built() as built:
        yield built


@pytest.fixture(scope="package")
def world(as_root: None) -> Iterator[World]:
    with World(kube_proxy="nftables") as standing:
        yield standing


@pytest.fixture
def deploy(world: World, image: ImageRoot, tmp_path: Path) -> Iterator[Deploy]:
    """Make objects known to an API server; pods are the test's to start, and removed after it."""
    with ExitStack() as stack:
        yield lambda *objects, **more: stack.enter_context(
            Deployment(world, image, tmp_path / "deployment", *objects, **more)
        )


@pytest.fixture
def deployment(deploy: Deploy) -> Deployment:
    return deploy()
