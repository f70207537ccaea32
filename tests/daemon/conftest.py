from collections.abc import Iterator

import pytest

from tests.daemon.cluster_api import ClusterApi
from tests.daemon.made_objects import MADE_CLUSTER_IPS, write_config
from tests.daemon.running_agent import Agents
from tests.testbed.world import World


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    with World(kube_proxy="nftables") as standing:
        for node in standing.nodes:
            # Nothing answers behind the Services that tests make up; kube-proxy refuses such at once, too.
            node.run(["ip", "route", "add", "unreachable", str(MADE_CLUSTER_IPS)])
        yield standing


@pytest.fixture
def api(world: World) -> Iterator[ClusterApi]:
    with ClusterApi(world.lb, world.tmp) as served:
        yield served


@pytest.fixture
def agents(world: World, api: ClusterApi) -> Iterator[Agents]:
    config = write_config(world.tmp / "nodeagent.yaml")
    with Agents(world.node1, api, config) as started:
        yield started
