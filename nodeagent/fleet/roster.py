"""The nodes, and the pod of nodeagent on each: read from the API, without a query to any node."""

from dataclasses import replace
from typing import Any

from msgspec import Struct, field

from nodeagent.model.objects import ObjectRef, Unreadable
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.resources import NODES, Resource, object_path
from nodeagent.sources.objects.api import Head
from nodeagent.sources.objects.decoding import decode

APP = "nodeagent"
"""The DaemonSet's name, and its pods' label app.kubernetes.io/name (daemonset/base)."""
AGENT = "agent"
RELAY = "relay"
_OS = "kubernetes.io/os"
_UNKNOWN = "Unknown"


class AgentPod(Struct, frozen=True):
    """A pod of nodeagent.

    Attributes:
        name: its name.
        running: whether the container `agent` runs: then it can be queried.
        trouble: why it is not ready, in words; empty if it is.
    """

    name: str
    running: bool
    trouble: str


class Seat(Struct, frozen=True):
    """A node and its pod.

    Attributes:
        node: its name.
        pod: the pod to query; None if there is none.
        silent: why the node itself does not answer, by its conditions; empty if it does.
        unreadable: why its object can't be read; then `node` says which object it is.
    """

    node: str
    pod: AgentPod | None
    silent: str = ""
    unreadable: str = ""


class _Condition(Struct):
    type: str = ""
    status: str = ""
    message: str = ""


class _State(Struct):
    reason: str = ""
    message: str = ""


class _ContainerStatus(Struct, rename="camel"):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: dict[str, _State | None] = field(default_factory=dict)


class _Template(Struct):
    spec: "_Spec"


class _Spec(Struct, rename="camel"):
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    template: _Template | None = None


class _Status(Struct, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[_Condition] = field(default_factory=list)
    container_statuses: list[_ContainerStatus] = field(default_factory=list)
    desired_number_scheduled: int = 0


class _Object(Head):
    """A Node, a pod or a DaemonSet: each has some of these fields."""

    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


def read_roster(connection: Connection, namespace: str) -> tuple[Seat, ...]:
    """List the nodes that have, or should have, a pod of nodeagent, by name; then the unreadable objects.

    Changes nothing. A node lacks a pod only if there are fewer pods than the DaemonSet controller wants: only
    that evaluates affinity and taints. Then each node counts that the node selector matches.

    RBAC: list nodes; in the namespace list pods and get the DaemonSet.

    Raises:
        SourceError: a list is not available, or there is no such DaemonSet; the text says what to do.
    """
    daemonset = _decoded(connection.get_json(object_path(ObjectRef("DaemonSet", namespace, APP))))
    of_app = {"labelSelector": f"app.kubernetes.io/name={APP}"}
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    nodes, unreadable = _listed(connection, replace(NODES, decode=_decoded))
    pods, more = _listed(connection, Resource("pods", "Pod", pods_path, _decoded, of_app))
    chosen: dict[str, AgentPod] = {}
    for pod in sorted(pods, key=_rank):
        if pod.spec.node_name:
            chosen[pod.spec.node_name] = AgentPod(pod.metadata.name, _is_running(pod), _trouble(pod))
    selector = daemonset.spec.template.spec.node_selector if daemonset.spec.template else {}
    selected = {_OS: "linux", **selector}
    known = {node.metadata.name: node for node in nodes}
    wanted = {name for name in known if selected.items() <= (known[name].metadata.labels or {}).items()}
    # A pod that drains where it is no longer wanted must not count in place of one that is missing.
    staying = {pod.spec.node_name for pod in pods if pod.metadata.deletionTimestamp is None}
    names = set(chosen)
    if daemonset.status.desired_number_scheduled > len(names & (staying | wanted)):
        names |= wanted
    return (
        *(Seat(name, chosen.get(name), _silence(known.get(name))) for name in sorted(names)),
        *(Seat(entry.where, None, unreadable=entry.reason) for entry in (*unreadable, *more)),
    )


def _decoded(raw: bytes | dict[str, Any]) -> _Object:
    return decode(raw, _Object)


def _listed(connection: Connection, resource: Resource) -> tuple[list[_Object], list[Unreadable]]:
    items = read_list(connection, resource).items.values()
    return (
        [item.value for item in items if isinstance(item.value, _Object)],
        [item.unreadable for item in items if item.unreadable is not None],
    )


def _rank(pod: _Object) -> tuple[bool, bool, bool, float]:
    """Return a sort key: of a node's pods, the last one is queried. One that is not ready may wait."""
    leaving, created = pod.metadata.deletionTimestamp is not None, pod.metadata.creationTimestamp
    return (_is_running(pod), not _trouble(pod), not leaving, created.timestamp() if created else 0.0)


def _silence(node: _Object | None) -> str:
    if node is None:
        return "the node no longer exists"
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status == _UNKNOWN:
            return f"the node does not answer: {condition.message or 'its kubelet does not report'}"
    return ""


def _is_running(pod: _Object) -> bool:
    return any(one.name == AGENT and one.state.get("running") for one in pod.status.container_statuses)


def _trouble(pod: _Object) -> str:
    lines = []
    for status in pod.status.container_statuses:
        stopped = status.state.get("waiting") or status.state.get("terminated")
        if stopped is not None:
            restarts = f", {status.restart_count} restarts" if status.restart_count else ""
            lines.append(
                f"container {status.name}: {stopped.reason or 'is not running'}{restarts}"
                + (f": {stopped.message}" if stopped.message else "")
            )
        elif not status.ready:
            lines.append(f"container {status.name} is not ready")
    if lines:
        return "; ".join(lines)
    if pod.status.phase != "Running":
        scheduled = next((one.message for one in pod.status.conditions if one.status == "False"), "")
        words = pod.status.reason or pod.status.message or scheduled
        return f"pod is {pod.status.phase or 'new'}" + (f": {words}" if words else "")
    return ""
