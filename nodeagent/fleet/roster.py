"""The nodes, and the pod of nodeagent on each: read from the API, without a query to any node."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct, field

from nodeagent.model.objects import ObjectRef, Unreadable
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.resources import Resource, object_path
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
        leaving: whether it is being deleted.
        created: when it was made.
    """

    name: str
    running: bool
    trouble: str
    leaving: bool
    created: datetime | None


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


class _NodeStatus(Struct):
    conditions: list[_Condition] = field(default_factory=list)


class _Node(Head):
    status: _NodeStatus = field(default_factory=_NodeStatus)


class _State(Struct):
    reason: str = ""
    message: str = ""


class _ContainerStatus(Struct, rename="camel"):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: dict[str, _State | None] = field(default_factory=dict)


class _PodStatus(Struct, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[_Condition] = field(default_factory=list)
    container_statuses: list[_ContainerStatus] = field(default_factory=list)


class _PodSpec(Struct, rename="camel"):
    node_name: str = ""


class _Pod(Head):
    spec: _PodSpec = field(default_factory=_PodSpec)
    status: _PodStatus = field(default_factory=_PodStatus)


class _TemplateSpec(Struct, rename="camel"):
    node_selector: dict[str, str] = field(default_factory=dict)


class _Template(Struct):
    spec: _TemplateSpec = field(default_factory=_TemplateSpec)


class _DaemonSetSpec(Struct):
    template: _Template = field(default_factory=_Template)


class _DaemonSetStatus(Struct, rename="camel"):
    desired_number_scheduled: int = 0


class _DaemonSet(Struct):
    spec: _DaemonSetSpec = field(default_factory=_DaemonSetSpec)
    status: _DaemonSetStatus = field(default_factory=_DaemonSetStatus)


def read_roster(connection: Connection, namespace: str) -> tuple[Seat, ...]:
    """List the nodes that have, or should have, a pod of nodeagent; changes nothing.

    RBAC: list nodes; in the namespace list pods and get the DaemonSet.

    Raises:
        SourceError: a list is not available, or there is no such DaemonSet; the text says what to do.
    """
    path = object_path(ObjectRef("DaemonSet", namespace, APP))
    daemonset = decode(connection.get_json(path), _DaemonSet)
    selector = {"labelSelector": f"app.kubernetes.io/name={APP}"}
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    nodes = read_list(connection, Resource("nodes", "Node", "/api/v1/nodes", lambda raw: decode(raw, _Node)))
    pods = read_list(connection, Resource("pods", "Pod", pods_path, lambda raw: decode(raw, _Pod), selector))
    items = (*nodes.items.values(), *pods.items.values())
    return seats(
        [item.value for item in items if isinstance(item.value, _Node)],
        [item.value for item in items if isinstance(item.value, _Pod)],
        daemonset,
        [item.unreadable for item in items if item.unreadable is not None],
    )


def seats(
    nodes: Iterable[_Node],
    pods: Iterable[_Pod],
    daemonset: _DaemonSet,
    unreadable: Iterable[Unreadable] = (),
) -> tuple[Seat, ...]:
    """Return a seat for each node that has a pod or lacks one, by name, and for each unreadable object. Pure.

    A node lacks a pod only if there are fewer pods than the DaemonSet controller wants: only that evaluates
    affinity and taints. Then each node counts that the node selector matches.
    """
    chosen: dict[str, AgentPod] = {}
    for pod in pods:
        if pod.spec.node_name:
            found = _pod(pod)
            held = chosen.get(pod.spec.node_name)
            if held is None or _rank(found) > _rank(held):
                chosen[pod.spec.node_name] = found
    short = daemonset.status.desired_number_scheduled > len(chosen)
    wanted = {_OS: "linux", **daemonset.spec.template.spec.node_selector}
    known = {node.metadata.name: node for node in nodes}
    names = set(chosen) | {name for name, node in known.items() if short and _matches(node, wanted)}
    return (
        *(Seat(name, chosen.get(name), _silence(known.get(name))) for name in sorted(names)),
        *(Seat(entry.where, None, unreadable=entry.reason) for entry in unreadable),
    )


def _rank(pod: AgentPod) -> tuple[bool, bool, bool, float]:
    """Return a rank: of two pods, the one with the higher rank is queried. One that is not ready may wait."""
    return (pod.running, not pod.trouble, not pod.leaving, pod.created.timestamp() if pod.created else 0.0)


def _matches(node: _Node, wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= (node.metadata.labels or {}).items()


def _silence(node: _Node | None) -> str:
    if node is None:
        return "the node no longer exists"
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status == _UNKNOWN:
            return f"the node does not answer: {condition.message or 'its kubelet does not report'}"
    return ""


def _pod(pod: _Pod) -> AgentPod:
    status = next((one for one in pod.status.container_statuses if one.name == AGENT), None)
    return AgentPod(
        name=pod.metadata.name,
        running=status is not None and status.state.get("running") is not None,
        trouble=_trouble(pod),
        leaving=pod.metadata.deletionTimestamp is not None,
        created=pod.metadata.creationTimestamp,
    )


def _trouble(pod: _Pod) -> str:
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
