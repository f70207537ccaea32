"""A real cluster as a place: its API by a kubeconfig, its nodes by a command line (ssh, docker, nsenter)."""

import json
import os
import shlex
import subprocess
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from subprocess import CompletedProcess
from typing import Final

from tests.daemonset.kustomize import Object
from tests.testbed.addresses import Address
from tests.testbed.container_runtime import PullResult
from tests.testbed.errors import WorldError
from tests.testbed.http import CurlResult, curl_command, curl_results, resolving
from tests.testbed.waiting import wait_until

PATIENCE: Final = int(os.environ.get("PATIENCE", "1"))
"""How many times what it takes on an ordinary machine anything may take."""
_TIMED_OUT = 124
_IN = "--namespace=default"
_PARTED = "\n--- stderr ---\n"
_RUN = Path(__file__).with_name("in_pod.sh").read_text("utf-8")
_NOT_PULLED = {"ErrImagePull", "ImagePullBackOff"}
_ROLLOUT_SECONDS = 300
# The pods' terminationGracePeriodSeconds, and a minute.
_END_SECONDS = 360
_DAEMONSET = ("daemonset/nodeagent", "--namespace=nodeagent")
_GONE = ("--ignore-not-found", "--output=name", f"--timeout={_END_SECONDS * PATIENCE}s")


@dataclass(frozen=True)
class Said:
    """The result of a command, and the address that its machine or pod is known by."""

    done: CompletedProcess[str]
    address: Address


class ClusterPlace:
    """A cluster whose nodes have the same names in the API and for the command that leads to them."""

    def __init__(self, setting: Namespace) -> None:
        """Take the options of `python -m tests.acceptance cluster`."""
        self._setting = setting
        self.nodes: Sequence[str] = setting.nodes
        self.load_balancer: Address = setting.load_balancer
        self.image: str = setting.image

    def on_node(self, node: str, command: Sequence[str], *, seconds: float = 30.0) -> Said:
        done = run_on_node(self._setting.node_command, node, command, seconds)
        return Said(done, self._addresses[node])

    def in_pod(self, node: str, command: Sequence[str], *, seconds: float = 60.0) -> Said:
        """Run a command in a new pod of a node; of what it said, the first 4 KiB are returned."""
        run = ["sh", "-c", _RUN, "sh", *command]
        with self._pod(node, self._setting.pod_image, run, "IfNotPresent") as pod:
            found = self._await_state(pod, "terminated", seconds)
        ended = _state(found)["terminated"]
        stdout, parted, stderr = ended.get("message", "").partition(_PARTED)
        if not parted:
            raise WorldError(f"pod {pod} on {node} said nothing: {ended}")
        done = CompletedProcess(list(command), ended["exitCode"], stdout, stderr)
        return Said(done, ip_address(found["status"]["podIP"]))

    def curl(
        self, node: str, url: str, *, pod: bool = False, resolve: Address | None = None
    ) -> tuple[CurlResult, Address]:
        """Ask for a page on a node or in a pod of it; returns the answer and the address of who asked."""
        command = curl_command([(url, resolving(url, resolve))], 10.0 * PATIENCE)
        said = (self.in_pod if pod else self.on_node)(node, command)
        answers = curl_results(said.done.stdout)
        if not answers:
            raise WorldError(f"{node}: curl: {said.done.stdout}{said.done.stderr}")
        return answers[0], said.address

    def pull(self, node: str) -> PullResult:
        """Have the kubelet pull for a new pod, which must not start without asking the registry."""
        with self._pod(node, self.image, ["true"], "Always") as pod:
            state = _state(self._await_state(pod, "pulled", seconds=120))
        if "terminated" in state:
            ended = state["terminated"]
            return PullResult(ended["exitCode"] == 0, f"the container ended: {ended}")
        return PullResult(ok=False, reason=state["waiting"].get("message", ""))

    def install(self) -> None:
        self._kubectl("apply", "--kustomize", str(self._setting.kustomization))
        self._await_rollout()

    def upgrade(self) -> None:
        image = self._setting.upgrade_to
        change = ("set", "image", *_DAEMONSET, f"*={image}") if image else ("rollout", "restart", *_DAEMONSET)
        self._kubectl(*change)
        self._await_rollout()

    def uninstall(self) -> None:
        if not self.uninstall_what_stands():
            raise WorldError("nothing of nodeagent was there to be deleted")

    def uninstall_what_stands(self) -> bool:
        seconds = _END_SECONDS + 10
        found = self._kubectl("delete", *_DAEMONSET, "--cascade=foreground", *_GONE, seconds=seconds)
        kustomization = f"--kustomize={self._setting.kustomization}"
        return bool(found + self._kubectl("delete", kustomization, *_GONE, seconds=seconds))

    @cached_property
    def _addresses(self) -> dict[str, Address]:
        internal = '--output=jsonpath={.status.addresses[?(@.type=="InternalIP")].address}'
        return {
            node: ip_address(self._kubectl("get", "node", node, internal).split()[0]) for node in self.nodes
        }

    def _await_rollout(self) -> None:
        limit = f"--timeout={_ROLLOUT_SECONDS * PATIENCE}s"
        self._kubectl("rollout", "status", *_DAEMONSET, limit, seconds=_ROLLOUT_SECONDS + 10)

    @contextmanager
    def _pod(self, node: str, image: str, command: Sequence[str], pull_policy: str) -> Iterator[str]:
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
        self._kubectl("create", "--filename=-", _IN, given=pod)
        try:
            yield name
        finally:
            self._kubectl("delete", "pod", name, _IN, "--ignore-not-found")

    def _await_state(self, pod: str, wanted: str, seconds: float) -> Object:
        """Wait until the container has ended; or, for `pulled`, a pull has failed for its connection."""
        seen: list[Object] = []

        def there() -> bool:
            found = json.loads(self._kubectl("get", "pod", pod, _IN, "--output=json"))
            seen[:] = [found]
            state = _state(found)
            # ImagePullBackOff alone does not always say why; ErrImagePull does, and comes first.
            refused = state.get("waiting", {})
            failed = refused.get("reason") in _NOT_PULLED and bool(refused.get("message"))
            if failed and wanted == "terminated":
                raise WorldError(f"pod {pod}: {refused['message']}")
            return "terminated" in state or failed

        try:
            wait_until(there, f"pod {pod}: {wanted}", seconds=seconds * PATIENCE, every=0.5)
        except WorldError as error:
            raise WorldError(f"{error}; it was last seen as {seen[-1].get('status')}") from error
        return seen[-1]

    def _kubectl(self, *words: str, given: Object | None = None, seconds: float = 60.0) -> str:
        """Run kubectl, `given` on its standard input; returns what it printed. Several threads may do so."""
        command = ["kubectl", "--kubeconfig", str(self._setting.kubeconfig), *words]
        try:
            done = subprocess.run(
                command,
                input=json.dumps(given) if given else "",
                capture_output=True,
                text=True,
                timeout=seconds * PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorldError(f"kubectl {' '.join(words)}: {error}") from error
        if done.returncode:
            raise WorldError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


def _state(pod: Object) -> Object:
    """Return the state of its only container; empty before the kubelet has said anything."""
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    state: Object = statuses[0].get("state", {})
    return state


def run_on_node(template: str, node: str, command: Sequence[str], seconds: float) -> CompletedProcess[str]:
    """Run a command on a node as root; raises a WorldError if it is not reached, or if that took too long.

    In the template, `{node}` is the node's name. The command's words follow the last word, or replace
    `{command}` as one string for a shell, as ssh's, that takes it apart. It must not exit with more than 123.
    """
    seconds *= PATIENCE
    whole = ["timeout", f"{seconds:g}", *command]
    named = [word.replace("{node}", node) for word in shlex.split(template)]
    words = [word.replace("{command}", shlex.join(whole)) for word in named]
    done = subprocess.run(
        words if "{command}" in template else [*words, *whole],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 30,
        check=False,
    )
    if done.returncode == _TIMED_OUT:
        raise WorldError(f"{node}: {command[0]} took longer than {seconds:g} s: {list(command)}")
    # What ssh (255), docker, a shell (126, 127) or a signal ends with: the command itself did not.
    if not 0 <= done.returncode < _TIMED_OUT:
        raise WorldError(f"{node}: {words[0]}: {done.stderr.strip() or done.returncode}")
    return done
