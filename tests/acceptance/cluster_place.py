"""A real cluster as a place: its API by a kubeconfig, its nodes by ssh or as Docker's containers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING, Self

from tests.acceptance.cluster_pods import pull_by_pod, run_in_pod
from tests.acceptance.kube_api import KubeApi
from tests.acceptance.node_shell import run_on_node
from tests.acceptance.place import Pulled, Said
from tests.daemonset.kustomize import Object, render
from tests.testbed.errors import WorldError
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from tests.testbed.addresses import Address

_POLL_SECONDS = 0.5
_ROLLOUT_SECONDS = 300.0
_PULL_SECONDS = 120.0
# The pods' terminationGracePeriodSeconds, and a minute.
_END_SECONDS = 360.0


@dataclass(frozen=True)
class Setting:
    """Which cluster, and what is tried on it: the options of `python -m tests.acceptance cluster`.

    Without `ssh_config`, the nodes are Docker containers of their names.
    """

    kubeconfig: Path
    ssh_config: Path | None
    nodes: tuple[str, ...]
    load_balancer: Address
    image: str
    pod_image: str
    kustomization: Path
    upgrade_to: str = ""


class ClusterPlace:
    """A cluster whose nodes have the same names in the API and in ssh's configuration, or in Docker."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._api = KubeApi(setting.kubeconfig)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._api.close()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that were named; the DaemonSet runs on all."""
        return self._setting.nodes

    @property
    def load_balancer(self) -> Address:
        """The address in the Service's status."""
        return self._setting.load_balancer

    @property
    def image(self) -> str:
        """What is pulled."""
        return self._setting.image

    def on_node(self, node: str, command: Sequence[str], *, seconds: float = 30.0) -> Said:
        """Run a command on a node."""
        done = run_on_node(self._setting.ssh_config, node, command, seconds)
        return Said(done, self._addresses[node])

    def in_pod(self, node: str, command: Sequence[str], *, seconds: float = 60.0) -> Said:
        """Run a command in a new pod."""
        return run_in_pod(self._api, node, self._setting.pod_image, command, seconds)

    def pull(self, node: str) -> Pulled:
        """Have the kubelet pull for a new pod."""
        return pull_by_pod(self._api, node, self._setting.image, _PULL_SECONDS)

    def install(self) -> None:
        """Do as `kubectl apply -k` and `kubectl rollout status`."""
        for obj in self._objects:
            self._api.create(obj)
        self._await_rollout()

    def upgrade(self) -> None:
        """Change the image if another one is given, and have every pod recreated in any case."""
        now = datetime.now(UTC).isoformat()
        template: Object = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": now}}}
        if self._setting.upgrade_to:
            template["spec"] = self._with_image(self._setting.upgrade_to)
        self._api.patch(self._daemonset, {"spec": {"template": template}})
        self._await_rollout()

    def uninstall(self) -> None:
        """Delete in the order of docs/install.md: the agents need their rights until they have ended."""
        if not self.uninstall_what_stands():
            raise WorldError("nothing of nodeagent was there to be deleted")

    def uninstall_what_stands(self) -> bool:
        """Delete what is there of it; returns whether anything was."""
        found = self._delete([self._daemonset])
        return self._delete([obj for obj in reversed(self._objects) if obj != self._daemonset]) or found

    @cached_property
    def _objects(self) -> list[Object]:
        return render(self._setting.kustomization)

    @property
    def _daemonset(self) -> Object:
        (found,) = (obj for obj in self._objects if obj["kind"] == "DaemonSet")
        return found

    @cached_property
    def _addresses(self) -> dict[str, Address]:
        return {node: self._address(node) for node in self._setting.nodes}

    def _address(self, node: str) -> Address:
        found = self._api.read({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        if found is None:
            raise WorldError(f"the cluster has no node {node}")
        internal = [one["address"] for one in found["status"]["addresses"] if one["type"] == "InternalIP"]
        return ip_address(internal[0])

    def _with_image(self, image: str) -> Object:
        """Return the part of a pod's spec that differs: a merge patch replaces lists whole."""
        spec = self._daemonset["spec"]["template"]["spec"]
        agent = next(one["image"] for one in spec["containers"] if one["name"] == "agent")
        return {
            kind: [one | {"image": image} if one["image"] == agent else one for one in spec[kind]]
            for kind in ("initContainers", "containers")
        }

    def _await_rollout(self) -> None:
        seen: list[Object] = []

        def complete() -> bool:
            found = self._api.read(self._daemonset)
            if found is None:
                raise WorldError("the DaemonSet nodeagent/nodeagent is gone")
            status = found.get("status", {})
            seen[:] = [status]
            # As `kubectl rollout status` has it.
            wanted: int = status.get("desiredNumberScheduled", 0)
            seen_by_controller: bool = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
            updated: int = status.get("updatedNumberScheduled", 0)
            available: int = status.get("numberAvailable", 0)
            return seen_by_controller and 0 < wanted == updated == available

        try:
            wait_until(complete, "the rollout of nodeagent", seconds=_ROLLOUT_SECONDS, every=_POLL_SECONDS)
        except WorldError as error:
            raise WorldError(f"{error}; the DaemonSet's status was last {seen[-1:]}") from error

    def _delete(self, objects: list[Object]) -> bool:
        """Delete objects and wait until all are deleted; returns whether any was there."""
        there = [obj for obj in objects if self._api.delete(obj)]
        wait_until(
            lambda: all(self._api.read(obj) is None for obj in there),
            f"the end of {', '.join(obj['kind'] + ' ' + obj['metadata']['name'] for obj in there)}",
            seconds=_END_SECONDS,
            every=_POLL_SECONDS,
        )
        return bool(there)
