"""A cluster of many nodes against the simulated API: a pod of nodeagent on each, asked by exec."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from nodeagent import __version__
from nodeagent.observe.status import IN_POD, AgentStatus, ComponentStatus, DecisionCounts, RelayStatus
from tests.apiserver import ApiServer, Object, objects
from tests.apiserver.containers import Ended

NAMESPACE = "nodeagent"
UPTIME = 100_000.0
_DOCUMENT = ["cat", "/proc/uptime", str(IN_POD)]

Answer = Callable[[Sequence[str]], Ended]


def status(node: str, **fields: Any) -> AgentStatus:  # noqa: ANN401 - of an AgentStatus
    """Return the document of a node that is in sync, but for the fields given."""
    found = AgentStatus(
        "1",
        "AgentStatus",
        node,
        __version__,
        UPTIME - 2,
        40.0,
        {component: ComponentStatus("ok") for component in ("api", "plan", "dnat", "hosts")},
        load_balancers=DecisionCounts(served=3, skipped=1),
        names=DecisionCounts(served=40),
        relay=RelayStatus("nodeagent-relay-x", "3.0.11"),
    )
    return msgspec.structs.replace(found, **fields)


def failing(reason: str) -> dict[str, ComponentStatus]:
    """Return the components of a node whose hosts file can't be written."""
    return {"api": ComponentStatus("ok"), "hosts": ComponentStatus("failed", reason, 61.0)}


def answering(document: AgentStatus | bytes) -> Answer:
    text = document if isinstance(document, bytes) else msgspec.json.encode(document)

    def program(command: Sequence[str]) -> Ended:
        if list(command) == _DOCUMENT:
            return Ended(0, f"{UPTIME} 400000.00\n".encode() + text)
        return Ended(127, stderr=f"not found: {command}".encode())

    return program


class Fleet:
    """Nodes and their pods, made in a simulated API server.

    Args:
        api: the server.
        count: how many nodes are in sync from the start: node000 and so on.
    """

    def __init__(self, api: ApiServer, count: int) -> None:
        self.api = api
        self.nodes: list[str] = []
        for number in range(count):
            name = f"node{number:03}"
            self.add(name, answering(status(name)))
        self.want(count)

    def want(self, pods: int) -> None:
        made = objects.daemon_set("nodeagent", NAMESPACE)
        made["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
        made["status"]["desiredNumberScheduled"] = pods
        self.api.store.apply(made)

    def add(self, name: str, answer: Answer | None, **pod: Any) -> None:  # noqa: ANN401 - see `set_pod`
        """Add a node with a pod that answers so; None for a node without a pod."""
        self.nodes.append(name)
        self.api.store.create(objects.node(name))
        if answer is not None:
            self.set_pod(name, answer, **pod)
        self.want(len(self.nodes))

    def set_pod(
        self, node: str, answer: Answer, *, running: bool = True, ready: bool = True, suffix: str = ""
    ) -> str:
        name = f"nodeagent-{node}{suffix}"
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}}
        container = {"name": "agent", "image": "nodeagent:0.1.0"}
        shown: Object = {"name": "agent", "ready": running and ready, "restartCount": 0 if running else 7}
        shown["state"] = {"running": {}} if running else waiting
        self._apply_pod(name, "nodeagent", node, container, shown)
        self.api.containers.run(NAMESPACE, name, "agent", answer)
        return name

    def set_relay(self, node: str, *, ready: bool = True) -> str:
        name = f"nodeagent-relay-{node}"
        shown: Object = {"name": "relay", "ready": ready, "state": {"running": {}}}
        self._apply_pod(name, "nodeagent-relay", node, {"name": "relay"}, shown)
        return name

    def _apply_pod(self, name: str, app: str, node: str, container: Object, status: Object) -> None:
        labels = {"app.kubernetes.io/name": app}
        made: Object = {"apiVersion": "v1", "kind": "Pod"}
        made["metadata"] = {"namespace": NAMESPACE, "name": name, "labels": labels}
        made["spec"] = {"nodeName": node, "containers": [container]}
        made["status"] = {"phase": "Running", "containerStatuses": [status]}
        self.api.store.apply(made)

    def silence(self, node: str) -> None:
        """Let a node's kubelet post nothing any more, as the node controller notes it."""
        found = self.api.store.get("nodes", node)
        found["status"]["conditions"] = [
            {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
        ]
        self.api.store.update(found)
