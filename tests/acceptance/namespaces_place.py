"""The little world as a place: two nodes, each with a pod behind it, and the DaemonSet's pods on both.

What is not a cluster's here: the API server is the simulated one; containerd pulls without a kubelet that
tells it to; and who makes the DaemonSet's pods, and replaces and deletes them, is this file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.acceptance.place import Pulled, Said
from tests.daemonset.deployment import LEFT_BY_KUBELET
from tests.testbed.addresses import LOAD_BALANCER_IP, PLACES
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.daemonset.deployment import Deployment
    from tests.daemonset.pods import Pod
    from tests.testbed.addresses import Address
    from tests.testbed.namespaces import Host
    from tests.testbed.world import World

_IMAGE_MIB = 8
_END_SECONDS = 60.0


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
        self._pods: dict[str, Pod] = {}

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
        for name, node in self._nodes.items():
            self._pods[name] = self._deployment.pod(node=node)
            self._pods[name].start()
        for pod in self._pods.values():
            pod.await_ready()
            pod.agent.await_line("this agent writes on the node")

    def upgrade(self) -> None:
        """Replace the pods one by one, as maxSurge: 1 and maxUnavailable: 0 have it."""
        for name, old in self._pods.items():
            new = self._deployment.pod(node=old.node)
            new.start()
            new.await_ready()
            new.agent.await_line("this agent writes on the node")
            _end(old)
            self._pods[name] = new

    def uninstall(self) -> None:
        """Delete the DaemonSet, and end its pods all at once."""
        self._deployment.delete()
        with ThreadPoolExecutor() as together:
            list(together.map(_end, self._pods.values()))
        for pod in self._pods.values():
            pod.node.run(["rmdir", LEFT_BY_KUBELET[0]])
            pod.node.run(["rm", *LEFT_BY_KUBELET[1:]])
        self._pods.clear()


def _said(host: Host, command: Sequence[str], seconds: float) -> Said:
    place = next(place for place in PLACES if place.host == host.name)
    return Said(host.run(command, timeout=seconds, check=False), place.address)


def _end(pod: Pod) -> None:
    """End a pod within its time of grace, as the kubelet does; one that has to be killed is an error."""
    pod.terminate()
    for container in pod.containers.values():
        if container.wait(seconds=_END_SECONDS) != 0:
            raise WorldError(f"{container.name} of {pod.node.name} ended badly:\n{container.log()}")
    pod.remove()
