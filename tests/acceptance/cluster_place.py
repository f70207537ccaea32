"""A real cluster as a place: its API by a kubeconfig, its nodes by a command line that leads to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path

from tests.acceptance.answers import Said
from tests.acceptance.cluster_pods import pull_by_pod, run_in_pod
from tests.acceptance.kubectl import Kubectl
from tests.acceptance.node_shell import PATIENCE, run_on_node
from tests.testbed.addresses import Address
from tests.testbed.container_runtime import PullResult
from tests.testbed.errors import WorldError

_ROLLOUT_SECONDS = 300
_PULL_SECONDS = 120.0
# The pods' terminationGracePeriodSeconds, and a minute.
_END_SECONDS = 360
_DAEMONSET = ("daemonset/nodeagent", "--namespace=nodeagent")
_GONE = ("--ignore-not-found", "--output=name", f"--timeout={_END_SECONDS * PATIENCE}s")


@dataclass(frozen=True)
class Setting:
    """Which cluster, and what is tried on it: the options of `python -m tests.acceptance cluster`."""

    kubeconfig: Path
    node_command: str
    nodes: Sequence[str]
    load_balancer: Address
    image: str
    pod_image: str
    kustomization: Path
    upgrade_to: str


class ClusterPlace:
    """A cluster whose nodes have the same names in the API and for the command that leads to them."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.nodes, self.load_balancer, self.image = setting.nodes, setting.load_balancer, setting.image
        self._kubectl = Kubectl(setting.kubeconfig)

    def on_node(self, node: str, command: Sequence[str], *, seconds: float = 30.0) -> Said:
        """Run a command on a node."""
        done = run_on_node(self._setting.node_command, node, command, seconds)
        return Said(done, self._addresses[node])

    def in_pod(self, node: str, command: Sequence[str], *, seconds: float = 60.0) -> Said:
        """Run a command in a new pod."""
        return run_in_pod(self._kubectl, node, self._setting.pod_image, command, seconds)

    def pull(self, node: str) -> PullResult:
        """Have the kubelet pull for a new pod."""
        return pull_by_pod(self._kubectl, node, self._setting.image, _PULL_SECONDS)

    def install(self) -> None:
        """Apply the kustomization, and wait until every pod is ready."""
        self._kubectl("apply", "--kustomize", str(self._setting.kustomization))
        self._await_rollout()

    def upgrade(self) -> None:
        """Have every pod recreated, with another image if one is given."""
        image = self._setting.upgrade_to
        change = ("set", "image", *_DAEMONSET, f"*={image}") if image else ("rollout", "restart", *_DAEMONSET)
        self._kubectl(*change)
        self._await_rollout()

    def uninstall(self) -> None:
        """Delete in the order of docs/install.md: the agents need their rights until they have ended."""
        if not self.uninstall_what_stands():
            raise WorldError("nothing of nodeagent was there to be deleted")

    def uninstall_what_stands(self) -> bool:
        """Delete what is there of it; returns whether anything was."""
        seconds = _END_SECONDS + 10
        found = self._kubectl("delete", *_DAEMONSET, "--cascade=foreground", *_GONE, seconds=seconds)
        kustomization = f"--kustomize={self._setting.kustomization}"
        return bool(found + self._kubectl("delete", kustomization, *_GONE, seconds=seconds))

    @cached_property
    def _addresses(self) -> dict[str, Address]:
        return {node: self._address(node) for node in self._setting.nodes}

    def _address(self, node: str) -> Address:
        internal = '{.status.addresses[?(@.type=="InternalIP")].address}'
        return ip_address(self._kubectl("get", "node", node, f"--output=jsonpath={internal}").split()[0])

    def _await_rollout(self) -> None:
        limit = f"--timeout={_ROLLOUT_SECONDS * PATIENCE}s"
        self._kubectl("rollout", "status", *_DAEMONSET, limit, seconds=_ROLLOUT_SECONDS + 10)
