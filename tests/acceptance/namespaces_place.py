"""The testbed as a place: two nodes, each with a pod behind it, and the DaemonSet's pods on both.

What is not a cluster's here: the API server is the simulated one; containerd pulls without a kubelet that
tells it to; and daemonset_pods.py is who makes the DaemonSet's pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.acceptance.daemonset_pods import DaemonSetPods
from tests.acceptance.place import Pulled, Said
from tests.testbed.addresses import LOAD_BALANCER_IP, PLACES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.daemonset.deployment import Deployment
    from tests.testbed.addresses import Address
    from tests.testbed.namespaces import Host
    from tests.testbed.world import World

_IMAGE_MIB = 8


class NamespacesPlace:
    """node1 and node2 of a world.

    Args:
        world: The world.
        deployment: nodeagent in it, without a pod.
    """

    def __init__(self, world: World, deployment: Deployment) -> None:
        self._world = world
        self._deployment = deployment
        self._nodes = {node.name: node for node in world.nodes}
        self._beside = {"node1": world.pod1, "node2": world.pod2}
        self._image = world.push_image(_IMAGE_MIB)
        self.daemonset = DaemonSetPods(deployment, world.nodes)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Both."""
        return tuple(self._nodes)

    @property
    def load_balancer(self) -> Address:
        """The address in the Service's status."""
        return LOAD_BALANCER_IP

    @property
    def image(self) -> str:
        """An image of one random layer."""
        return self._image.reference

    def on_node(self, node: str, command: Sequence[str], *, seconds: float = 30.0) -> Said:
        """Run a command in a node's namespaces."""
        return _said(self._nodes[node], command, seconds)

    def in_pod(self, node: str, command: Sequence[str], *, seconds: float = 30.0) -> Said:
        """Run a command in the namespaces of the pod behind a node."""
        return _said(self._beside[node], command, seconds)

    def pull(self, node: str) -> Pulled:
        """Pull with the node's containerd."""
        pulled = self._nodes[node].pull(self._image)
        if pulled.ok:
            self._nodes[node].containers.remove(self._image)
        return Pulled(pulled.ok, pulled.stderr)

    def install(self) -> None:
        """Start a pod on each node."""
        self.daemonset.start()

    def upgrade(self) -> None:
        """Replace the pods."""
        self.daemonset.replace()

    def uninstall(self) -> None:
        """Delete the DaemonSet, and end its pods."""
        self._deployment.delete()
        self.daemonset.end()


def _said(host: Host, command: Sequence[str], seconds: float) -> Said:
    place = next(place for place in PLACES if place.host == host.name)
    return Said(host.run(command, timeout=seconds, check=False), place.address)
