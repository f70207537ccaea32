from collections.abc import Iterator

import pytest

from tests.doctor.states import Scene, stage
from tests.testbed.world import World


@pytest.fixture(scope="module")
def scene(as_root: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A world with kube-proxy in its nftables mode; states leave it as they found it."""
    with World() as world:
        yield stage(world, tmp_path_factory.mktemp("doctor"))
