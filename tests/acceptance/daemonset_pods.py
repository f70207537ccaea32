"""The DaemonSet's pods on the nodes of a world: started, replaced and ended as the controller does it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.daemonset.deployment import LEFT_BY_KUBELET
from tests.testbed.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.daemonset.deployment import Deployment
    from tests.daemonset.kustomize import Object
    from tests.daemonset.pods import Pod
    from tests.testbed.namespaces import Host

_END_SECONDS = 60.0


class DaemonSetPods:
    """One pod on each node, or none.

    Args:
        deployment: Makes the pods.
        nodes: Where they are to run.
    """

    def __init__(self, deployment: Deployment, nodes: Sequence[Host]) -> None:
        self._deployment = deployment
        self._nodes = nodes
        self.pods: list[Pod] = []

    def start(self, template: Object | None = None) -> None:
        """Start a pod on each node; returns when each is ready and at work."""
        self.pods = [self._deployment.pod(template, node) for node in self._nodes]
        for pod in self.pods:
            pod.start()
        for pod in self.pods:
            _await_at_work(pod)

    def replace(self, template: Object | None = None) -> None:
        """Replace the pods one by one, as maxSurge: 1 and maxUnavailable: 0 have it."""
        for number, old in enumerate(self.pods):
            new = self._deployment.pod(template, old.node)
            new.start()
            _await_at_work(new)
            _end(old)
            self.pods[number] = new

    def end(self) -> None:
        """End all pods at once, and take away what the kubelet made on the nodes for them."""
        with ThreadPoolExecutor() as together:
            list(together.map(_end, self.pods))
        for pod in self.pods:
            pod.node.run(["rmdir", LEFT_BY_KUBELET[0]])
            pod.node.run(["rm", "-r", *LEFT_BY_KUBELET[1:]])
        self.pods.clear()


def _await_at_work(pod: Pod) -> None:
    pod.await_ready()
    pod.agent.await_line("Became the writer on the node")


def _end(pod: Pod) -> None:
    """End a pod within its time of grace, as the kubelet does; one that has to be killed is an error."""
    pod.terminate()
    for container in pod.containers.values():
        if container.wait(seconds=_END_SECONDS) != 0:
            raise WorldError(f"{container.name} of {pod.node.name} ended badly:\n{container.log()}")
    pod.remove()
