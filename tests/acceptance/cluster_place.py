"""A real cluster as a place: its API by a kubeconfig, its nodes by a command line that leads to them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from tests.acceptance.answers import Said
from tests.acceptance.kubectl import Kubectl
from tests.acceptance.node_shell import PATIENCE, run_on_node
from tests.testbed.addresses import Address
from tests.testbed.container_runtime import PullResult
from tests.testbed.errors import WorldError
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.acceptance.kubectl import Kubectl
    from tests.daemonset.kustomize import Object

_IN = "--namespace=default"
_POLL_SECONDS = 0.5
_PARTED = "\n--- stderr ---\n"
# Standard output and standard error apart: a container's log has them mixed. The kubelet reads this file, up
# to 4 KiB.
_RUN = f"""
"$@" >/tmp/stdout 2>/tmp/stderr
code=$?
{{ cat /tmp/stdout; printf %s '{_PARTED}'; cat /tmp/stderr; }} >/dev/termination-log
exit "$code"
"""
_NOT_PULLED = {"ErrImagePull", "ImagePullBackOff"}


def run_in_pod(kubectl: Kubectl, node: str, image: str, command: Sequence[str], seconds: float) -> Said:
    """Run a command in a new pod of a node, and take the pod away.

    Args:
        kubectl: The cluster.
        node: The node.
        image: What the pod is made of: sh, and the command.
        command: The command.
        seconds: How long pod and command may take.

    Returns:
        What it said (the first 4 KiB), and the pod's address.

    Raises:
        WorldError: The pod did not run.
    """
    with _pod(kubectl, node, image, ["sh", "-c", _RUN, "sh", *command], "IfNotPresent") as pod:
        found = _await_state(kubectl, pod, "terminated", seconds)
    ended = _state(found)["terminated"]
    stdout, parted, stderr = ended.get("message", "").partition(_PARTED)
    if not parted:
        raise WorldError(f"pod {pod} on {node} said nothing: {ended}")
    done = subprocess.CompletedProcess(list(command), ended["exitCode"], stdout, stderr)
    return Said(done, ip_address(found["status"]["podIP"]))


def pull_by_pod(kubectl: Kubectl, node: str, image: str, seconds: float) -> PullResult:
    """Have the kubelet of a node pull an image: by a new pod that must not start without asking the registry.

    Args:
        kubectl: The cluster.
        node: The node.
        image: The image; it must hold the program `true`.
        seconds: How long the pull may take.

    Raises:
        WorldError: The pull neither succeeded nor failed in time.
    """
    with _pod(kubectl, node, image, ["true"], "Always") as pod:
        found = _await_state(kubectl, pod, "pulled", seconds)
    state = _state(found)
    if "terminated" in state:
        ended = state["terminated"]
        return PullResult(ended["exitCode"] == 0, f"the container ended: {ended}")
    return PullResult(ok=False, reason=state["waiting"].get("message", ""))


@contextmanager
def _pod(kubectl: Kubectl, node: str, image: str, command: Sequence[str], pull_policy: str) -> Iterator[str]:
    name = f"nodeagent-acceptance-{token_hex(4)}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "nodeagent-acceptance"}},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "once", "image": image, "imagePullPolicy": pull_policy, "command": list(command)}
            ],
        },
    }
    kubectl("create", "--filename=-", _IN, given=pod)
    try:
        yield name
    finally:
        kubectl("delete", "pod", name, _IN, "--ignore-not-found")


def _await_state(kubectl: Kubectl, pod: str, wanted: str, seconds: float) -> Object:
    """Wait until the container has ended; or, for `pulled`, until a pull has failed for its connection."""
    seen: list[Object] = []

    def there() -> bool:
        found = json.loads(kubectl("get", "pod", pod, _IN, "--output=json"))
        seen[:] = [found]
        state = _state(found)
        # ImagePullBackOff alone does not always say why; ErrImagePull does, and comes first.
        refused = state.get("waiting", {})
        failed = refused.get("reason") in _NOT_PULLED and bool(refused.get("message"))
        if failed and wanted == "terminated":
            raise WorldError(f"pod {pod}: {refused['message']}")
        return "terminated" in state or failed

    try:
        wait_until(there, f"pod {pod}: {wanted}", seconds=seconds * PATIENCE, every=_POLL_SECONDS)
    except WorldError as error:
        raise WorldError(f"{error}; it was last seen as {seen[-1].get('status')}") from error
    return seen[-1]


def _state(pod: Object) -> Object:
    """Return the state of its only container; empty before the kubelet has said anything."""
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    state: Object = statuses[0].get("state", {})
    return state


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
