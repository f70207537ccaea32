"""The overlay k3s as pods: its own configuration finds k3s' Traefik Service, next to iptables' rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.daemon.managed_state import names, relay_addresses
from tests.daemonset.deployment import Deployment
from tests.daemonset.kustomize import DAEMONSET
from tests.testbed.addresses import LOAD_BALANCER_IP, SITE
from tests.testbed.node_state import living_processes
from tests.testbed.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.daemonset.image_root import ImageRoot

pytestmark = pytest.mark.timeout(600)  # the first test builds the image: a minute, if the machine is idle

# The load balancers are the overlay's to name.
_OPTIONS = {"hosts": {"verify": "allow", "allow": ["example.test"]}}


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    """A world whose kube-proxy writes its rules as k3s' own does: by iptables."""
    with World(kube_proxy="iptables-nft") as standing:
        yield standing


@pytest.fixture
def overlay(world: World, image: ImageRoot, tmp_path: Path) -> Iterator[Deployment]:
    """The overlay known to an API server, where the controller's Service is called as in k3s."""
    directory = tmp_path / "deployment"
    overlay = DAEMONSET / "overlays" / "k3s"
    with Deployment(world, image, directory, overlay, options=_OPTIONS) as deployed:
        service = deployed.api.store.get("services", "ingress-nginx-controller", "ingress-nginx")
        deployed.api.store.delete("services", "ingress-nginx-controller", "ingress-nginx")
        named = {"namespace": "kube-system", "name": "traefik"}
        deployed.api.store.create({**service, "metadata": named})
        yield deployed


def test_it_serves_node_and_pods_and_leaves_nothing(world: World, overlay: Deployment) -> None:
    node = world.node1
    assert not node.curl(f"https://{SITE}/").ok
    pod = overlay.ready_pod()
    for user in (node, world.pod1):
        assert user.curl(f"https://{SITE}/").ok
        assert user.curl(f"http://{LOAD_BALANCER_IP}/").ok
    assert SITE in names(node)
    assert '"level": "ERROR"' not in pod.agent.log()
    overlay.delete()
    pod.terminate()
    assert pod.agent.wait() == 0, pod.agent.log()
    assert pod.relay.wait() == 0, pod.relay.log()
    assert names(node) == {}
    assert relay_addresses(node) == frozenset()
    assert "nodeagent" not in node.run(["nft", "list", "tables"]).stdout
    assert living_processes(node, "haproxy") == []
