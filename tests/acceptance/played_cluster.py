"""What makes a cluster of a world and a simulated API: sshd on nodes, kubelets, a DaemonSet controller."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Queue
from typing import TYPE_CHECKING

from tests.apiserver.store import Part
from tests.testbed.addresses import NODE1, NODE2, POD1, POD2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.acceptance.daemonset_pods import DaemonSetPods
    from tests.apiserver import ApiServer
    from tests.apiserver.store import Change
    from tests.daemonset.kustomize import Object
    from tests.testbed.world import World

DAEMONSET = ("daemonsets", "nodeagent", "nodeagent")

_SSHD = """
ListenAddress {address}
HostKey {key}
AuthorizedKeysFile {key}.pub
UsePAM no
StrictModes no
PidFile none
"""
# A container's own /tmp and /dev, as far as a pod of one command writes there.
_CONTAINER = """
mount -t tmpfs tmpfs /tmp
mkdir /tmp/dev
: >/tmp/dev/null
mount --bind /dev/null /tmp/dev/null
mount --rbind /tmp/dev /dev
"$@"
code=$?
cat /dev/termination-log
exit "$code"
"""
_FOREGROUND = {"metadata": {"finalizers": ["foregroundDeletion"]}}


def start_sshd(world: World) -> Path:
    """Let root into every node by a key; returns ssh's configuration, which knows the nodes by name."""
    key = world.tmp / "ssh-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    config = world.tmp / "ssh-config"
    # The default key exchange, with sntrup761, costs 0.13 s more of CPU time per connection.
    config.write_text(
        f"Host node1\n  HostName {NODE1}\nHost node2\n  HostName {NODE2}\n"
        f"Host *\n  User root\n  IdentityFile {key}\n  StrictHostKeyChecking accept-new\n"
        f"  UserKnownHostsFile {world.tmp}/known-hosts\n  KexAlgorithms curve25519-sha256\n",
        encoding="ascii",
    )
    for node, address in ((world.node1, NODE1), (world.node2, NODE2)):
        file = world.tmp / f"sshd-{node.name}"
        file.write_text(_SSHD.format(address=address, key=key), encoding="ascii")
        # Not bash, which reads the machine's own ~/.bashrc when sshd starts it.
        node.run(["sed", "--in-place", r"s|^\(root:.*:\).*|\1/bin/sh|", "/etc/passwd"])
        # sshd rejects a locked account; one without a valid password does not count as locked.
        (node.etc / "shadow").write_text("root:none:1::::::\n", encoding="ascii")
        node.run(["mkdir", "-m", "0755", "/run/sshd"])
        node.await_port(22, node.popen(["/usr/sbin/sshd", "-D", "-e", "-f", file]))
    return config


@contextmanager
def following(api: ApiServer, plural: str, take: Callable[[Object], None]) -> Iterator[None]:
    """Hand each new state of a resource's objects to a thread, in order.

    If the thread fails, the API server ends, so that nothing waits for what the thread would have done; the
    thread's error is raised at the end.
    """
    resource = api.store.resource(plural)
    waiting: Queue[Object | None] = Queue()

    def receive(change: Change) -> None:
        if change.new is not None:
            waiting.put(json.loads(change.new.item))

    def work() -> None:
        try:
            while (obj := waiting.get()) is not None:
                take(obj)
        except BaseException:
            api.stop_listening()
            raise

    with ThreadPoolExecutor(1) as thread:
        api.store.follow(resource, None, receive)
        working = thread.submit(work)
        try:
            yield
        finally:
            api.store.unfollow(resource, receive)
            waiting.put(None)
        working.result()


@contextmanager
def kubelets(
    api: ApiServer, world: World, pull: Callable[[str, str], str] = lambda _node, _image: ""
) -> Iterator[list[Object]]:
    """Run each new pod's command in the pod behind its node.

    Args:
        api: Where pods are made.
        world: Where they run.
        pull: Pulls an image on a node; returns why it could not, or nothing.

    Yields:
        The pods so far.
    """
    behind = {"node1": (world.pod1, POD1), "node2": (world.pod2, POD2)}
    pods: list[Object] = []

    def take(pod: Object) -> None:
        if "containerStatuses" in pod.get("status", {}):
            return
        pods.append(pod)
        host, address = behind[pod["spec"]["nodeName"]]

        def say(state: Object) -> None:
            status = {"podIP": str(address), "containerStatuses": [{"name": "once", "state": state}]}
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            api.store.patch("pods", name, namespace, {"status": status}, part=Part.STATUS)

        (container,) = pod["spec"]["containers"]
        say({"waiting": {"reason": "ContainerCreating"}})
        if refusal := pull(pod["spec"]["nodeName"], container["image"]):
            say({"waiting": {"reason": "ErrImagePull", "message": refusal}})
            return
        command = ["unshare", "--mount", "sh", "-c", _CONTAINER, "sh", *container["command"]]
        done = host.run(command, check=False)
        say({"terminated": {"exitCode": done.returncode, "message": done.stdout}})

    with following(api, "pods", take):
        yield pods


@contextmanager
def daemonset_controller(api: ApiServer, pods: DaemonSetPods) -> Iterator[None]:
    """Start, replace and end the DaemonSet's pods as its object says; it is removed after them."""
    templates: list[Object] = []

    def take(found: Object) -> None:
        if "deletionTimestamp" in found["metadata"]:
            pods.end()
            templates.clear()
            api.store.patch(*DAEMONSET, {"metadata": {"finalizers": None}})
        elif found["spec"]["template"] not in templates:
            api.store.patch(*DAEMONSET, _FOREGROUND)
            templates.append(found["spec"]["template"])
            (pods.replace if len(templates) > 1 else pods.start)(found["spec"]["template"])
            status = {
                "observedGeneration": found["metadata"]["generation"],
                "desiredNumberScheduled": len(pods.pods),
                "updatedNumberScheduled": len(pods.pods),
                "numberAvailable": len(pods.pods),
            }
            api.store.patch(*DAEMONSET, {"status": status}, part=Part.STATUS)

    with following(api, "daemonsets", take):
        yield
