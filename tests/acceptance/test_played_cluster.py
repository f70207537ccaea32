"""`python -m tests.acceptance cluster` as a person runs it, on a world made a cluster as far as one can.

Real: ssh, every packet, HAProxy, nginx, containerd's pulls, the agent in the filesystem of its image. Played:
the API server, the kubelets' part in it, and the DaemonSet's controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.__main__ import main
from tests.acceptance.daemonset_pods import DaemonSetPods
from tests.acceptance.played_cluster import daemonset_controller, kubelets, start_sshd
from tests.acceptance.steps import STEPS
from tests.daemonset.deployment import Deployment
from tests.testbed.addresses import LOAD_BALANCER_IP
from tests.testbed.fixtures import needs_root
from tests.testbed.inside import inside
from tests.testbed.vagrant.machine_root import REPOSITORY
from tests.testbed.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.daemonset.image_root import ImageRoot

pytestmark = [
    needs_root,
    pytest.mark.long,
    pytest.mark.timeout(600),
]  # the first test builds the image: a minute, if the machine is idle


@pytest.fixture(scope="module")
def world(as_root: None) -> Iterator[World]:
    """A world, with another kind of kube-proxy than the steps have in namespaces."""
    with World(kube_proxy="iptables-nft") as standing:
        yield standing


def test_every_step_is_observed_by_kubeconfig_and_ssh(
    world: World, image: ImageRoot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pulled = world.push_image(1)
    nodes = {node.name: node for node in world.nodes}

    def pull(node: str, reference: str) -> str:
        if reference != pulled.reference:
            return ""
        result = nodes[node].pull(pulled)
        if result.ok:
            nodes[node].containers.remove(pulled)
        return result.stderr if not result.ok else ""

    with Deployment(world, image, tmp_path / "deployment") as deployment:
        deployment.delete()
        deployment.api.access.require_token("administrator")
        files = {
            "--kubeconfig": deployment.api.write_kubeconfig(tmp_path / "kubeconfig"),
            "--ssh-config": start_sshd(world),
            # What the virtual machines get.
            "--kustomization": REPOSITORY / "tests" / "testbed" / "vagrant" / "nodeagent",
        }
        options = [word for name, file in files.items() for word in (name, str(file))]
        options += ["--node", "node1", "--node", "node2", "--load-balancer", str(LOAD_BALANCER_IP)]
        options += ["--image", pulled.reference, "--pod-image", "localhost/testbed:1"]
        # Each request starts curl; daemonset/test_rehearsals.py makes many more during an upgrade.
        options += ["--pause", "0.25"]
        with (
            kubelets(deployment.api, world, pull),
            daemonset_controller(deployment.api, DaemonSetPods(deployment, world.nodes)),
            inside(world.lb),
        ):
            exit_code = main(["cluster", *options])
    shown = capsys.readouterr().out
    assert exit_code == 0, shown
    assert f"All {len(STEPS)} steps were observed" in shown
    for node in nodes:
        assert f"ok {node} pulled {pulled.reference}" in shown
        assert f"ok the self check succeeds from a pod of {node}" in shown
