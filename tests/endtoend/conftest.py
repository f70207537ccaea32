from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.endtoend.matrix import Combination
from tests.endtoend.trying import agent_on, leaving_no_trace
from tests.testbed.agent import Agent
from tests.testbed.world import World


@pytest.fixture(scope="module")
def combination(request: pytest.FixtureRequest) -> Combination:
    chosen: Combination = request.param
    return chosen


@pytest.fixture(scope="module")
def world(as_root: None, combination: Combination) -> Iterator[World]:
    with World(kube_proxy=combination.kube_proxy, family=combination.family) as standing:
        yield standing


@pytest.fixture
def agent(world: World, combination: Combination, tmp_path: Path) -> Iterator[Agent]:
    with _on_node1(world, combination, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def kept_agent(
    world: World, combination: Combination, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Agent]:
    with _on_node1(world, combination, tmp_path_factory.mktemp("kept")) as made:
        yield made


def _on_node1(world: World, combination: Combination, directory: Path) -> AbstractContextManager[Agent]:
    options = {"backend": combination.backend}
    return leaving_no_trace(agent_on(world.node1, world.manifests, directory, dnat=options))
