"""All nodes at a glance (`nodeagent fleet`): which should have an agent, and what each reports.

Agents are queried many at a time, each by a `cat` in its pod, this machine's by file.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from msgspec import MsgspecError, Struct, field, structs

from nodeagent.errors import SourceError, one_line
from nodeagent.model.objects import ObjectRef, Unreadable
from nodeagent.observe.status import IN_POD, LONGEST_TURN_SECONDS, DecisionCounts, parse_status
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import NO_API_SERVER, ForbiddenError, NotFoundError
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.resources import NODES, Resource, object_path
from nodeagent.sources.objects.api import DecodingError, Head, decode

APP, RELAY_APP = "nodeagent", "nodeagent-relay"
"""The DaemonSets' names, and their pods' labels app.kubernetes.io/name (daemonset/base)."""
AGENT, RELAY = "agent", "relay"
"""Their containers."""


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


_decoded = partial(decode, expected=_Object)


def _rank(pod: _Object) -> tuple[bool, bool, bool, float]:
    """Return a sort key: of a node's pods, the last one is queried."""
    leaving, created = pod.metadata.deletionTimestamp is not None, pod.metadata.creationTimestamp
    return (_is_running(pod), not _trouble(pod), not leaving, created.timestamp() if created else 0.0)


def _silence(node: _Object | None) -> str:
    if node is None:
        return "the node no longer exists"
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status == "Unknown":
            return f"the node does not answer: {condition.message or 'its kubelet does not report'}"
    return ""


def _is_running(pod: _Object) -> bool:
    ours = (container for container in pod.status.container_statuses if container.name in {AGENT, RELAY})
    return any(container.state.get("running") for container in ours)


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
        unmet = next(
            (condition.message for condition in pod.status.conditions if condition.status == "False"), ""
        )
        words = pod.status.reason or pod.status.message or unmet
        return f"pod is {pod.status.phase or 'new'}" + (f": {words}" if words else "")
    return ""


NodeState = Literal["no-pod", "not-ready", "drifted", "not-answering", "unreadable", "in-sync"]
"""The worst first: no agent, agent not working, a component fails, unknown (two), in sync."""

ORDER: tuple[NodeState, ...] = get_args(NodeState)
_AFFECTED: frozenset[NodeState] = frozenset({"no-pod", "not-ready", "drifted"})
_AT_ONCE = 64
_UPTIME = Path("/proc/uptime")
_LONGEST_ANSWER, _LONGEST_REASON = 1 << 18, 600
"""An answer may hold the active configuration, if the agent rejected a later one."""
_STUCK_SECONDS = LONGEST_TURN_SECONDS + 30
"""The kubelet restarts the agent in that time."""


class NodeRow(Struct, frozen=True, rename="camel"):
    """What is known of one node; what its agent did not report is empty, or None.

    `components` are those that fail or whose repairs another program reverts. `pod` is the one that was
    queried, `relay_pod` the newest relay pod, and `relay_version` that of the HAProxy at which new
    connections arrive. `last_sync_seconds` is the time since everything was last applied.
    """

    node: str
    state: NodeState
    reason: str = ""
    components: tuple[str, ...] = ()
    pod: str = ""
    version: str = ""
    relay_pod: str = ""
    relay_version: str = ""
    load_balancers: DecisionCounts | None = None
    hostnames: DecisionCounts | None = None
    last_sync_seconds: float | None = None


def exit_code(rows: Sequence[NodeRow]) -> int:
    """Return 0 if all are in sync, 2 if one is not, else 1: one could not be queried, or there is none."""
    states = {row.state for row in rows}
    if states & _AFFECTED:
        return 2
    return 0 if states == {"in-sync"} else 1


def _judged(node: str, answer: bytes, pod: _Object | None = None, relay: _Object | None = None) -> NodeRow:
    """Return the row for the output of `cat /proc/uptime FILE`."""
    name = pod.metadata.name if pod else ""
    if len(answer) > _LONGEST_ANSWER:
        return NodeRow(node, "unreadable", f"its answer has more than {_LONGEST_ANSWER} bytes", pod=name)
    line, _, content = answer.partition(b"\n")
    try:
        uptime, status = float(line.split()[0]), parse_status(content)
    except (ValueError, IndexError, MsgspecError, RecursionError) as error:
        why = f"this version of nodeagent can't read its status: {one_line(error)[:_LONGEST_REASON]}"
        return NodeRow(node, "unreadable", why, pod=name)
    age = max(0.0, uptime - status.written_at)
    failing = {key: component for key, component in status.components.items() if component.state == "failed"}
    not_ready: list[str] = []
    if age > _STUCK_SECONDS:
        not_ready.append(f"the agent's last report is {age:.0f} s old: it is stuck, or was killed")
    elif status.last_sync_seconds is None:
        not_ready.append("the agent has not applied everything yet")
    drifted = [
        f"{key}: failed for {component.failed_seconds + age:.0f} s: {component.reason}"
        for key, component in failing.items()
    ]
    drifted += [f"{key}: another program keeps reverting repairs" for key in status.conflicts]
    if not (not_ready or drifted):
        pods = (daemon for daemon in (pod, relay) if daemon and _trouble(daemon))
        not_ready = [f"{daemon.metadata.name}: {_trouble(daemon)}" for daemon in pods][:1]
    since = None if status.last_sync_seconds is None else status.last_sync_seconds + age
    return NodeRow(
        node,
        "not-ready" if not_ready else "drifted" if drifted else "in-sync",
        "; ".join((*not_ready, *drifted)),
        tuple(dict.fromkeys((*failing, *status.conflicts))),
        name,
        status.version,
        relay_version=status.relay.version,
        load_balancers=status.load_balancers,
        hostnames=status.names,
        last_sync_seconds=since,
    )


def read_fleet(connection: Connection, namespace: str, timeout: float = 10.0) -> list[NodeRow]:
    """Query all agents; return a row for each node that has, or should have, a pod of nodeagent.

    The worst state comes first, then it is by name; objects that can't be read have a row, too. `timeout`:
    seconds for the first answer, and for each node. RBAC: list nodes; in the DaemonSet's `namespace`, list
    pods, get the DaemonSet, create pods/exec. Raises SourceError.
    """
    rows, pods = _read_roster(connection, namespace, timeout)
    relay_pods = _listed(connection, _pods(namespace, RELAY_APP), [])
    relays = {pod.spec.node_name: pod for pod in sorted(relay_pods, key=_rank)}
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fleet")
    try:
        ask = partial(_ask, connection, namespace, timeout)
        queries = [pool.submit(ask, pod, relays.get(pod.spec.node_name)) for pod in pods]
        rows += [query.result() for query in as_completed(queries)]
    finally:
        # On Ctrl-C, or if one error affects every node: running queries end within their time limit.
        pool.shutdown(wait=False, cancel_futures=True)
    rows = [
        structs.replace(row, relay_pod=relays[row.node].metadata.name) if row.node in relays else row
        for row in rows
    ]
    return sorted(rows, key=lambda row: (ORDER.index(row.state), row.node))


def _read_roster(
    connection: Connection, namespace: str, timeout: float
) -> tuple[list[NodeRow], list[_Object]]:
    """Return rows for nodes whose agents can't be queried and unreadable objects, and the pods to query.

    A node lacks a pod only if there are fewer pods than the DaemonSet controller wants: only that evaluates
    affinity and taints. Then each node counts that the node selector matches.
    """
    ref = ObjectRef("DaemonSet", namespace, APP)
    try:
        daemonset = _decoded(connection.get_json(object_path(ref), timeout=timeout))
    except NotFoundError as error:
        advice = "; if nodeagent is in another namespace, pass --namespace" * error.by_api_server
        raise NotFoundError(f"{error}{advice}") from error
    except DecodingError as error:
        raise SourceError(f"{ref}: the answer can't be used: {error}; {NO_API_SERVER}") from error
    rows: list[NodeRow] = []
    nodes = _listed(connection, replace(NODES, decode=_decoded), rows)
    pods = _listed(connection, _pods(namespace, APP), rows)
    chosen = {pod.spec.node_name: pod for pod in sorted(pods, key=_rank) if pod.spec.node_name}
    selector = daemonset.spec.template.spec.node_selector if daemonset.spec.template else {}
    selected = {"kubernetes.io/os": "linux", **selector}
    known = {node.metadata.name: node for node in nodes}
    wanted = {name for name in known if selected.items() <= (known[name].metadata.labels or {}).items()}
    # A pod that drains where it is no longer wanted must not count in place of one that is missing.
    staying = {pod.spec.node_name for pod in pods if pod.metadata.deletionTimestamp is None}
    names = set(chosen)
    if daemonset.status.desired_number_scheduled > len(names & (staying | wanted)):
        names |= wanted
    asked = []
    for name in names:
        pod, silent = chosen.get(name), _silence(known.get(name))
        if pod is None:
            why = silent or f"kubectl -n {namespace} describe daemonset {APP} says why"
            rows.append(NodeRow(name, "no-pod", f"no pod of nodeagent on this node; {why}"))
        elif silent:
            rows.append(NodeRow(name, "not-answering", silent, pod=pod.metadata.name))
        elif not _is_running(pod):
            why = _trouble(pod) or "its container agent is not running"
            rows.append(NodeRow(name, "not-ready", why, pod=pod.metadata.name))
        else:
            asked.append(pod)
    return rows, asked


def _listed(connection: Connection, resource: Resource, rows: list[NodeRow]) -> list[_Object]:
    """Return the collection's objects; those that can't be read become rows."""
    values = read_list(connection, resource).items.values()
    rows += [
        NodeRow(value.where, "unreadable", value.reason) for value in values if isinstance(value, Unreadable)
    ]
    return [value for value in values if isinstance(value, _Object)]


def _pods(namespace: str, app: str) -> Resource:
    query = {"labelSelector": f"app.kubernetes.io/name={app}"}
    return Resource("pods", "Pod", f"/api/v1/namespaces/{namespace}/pods", _decoded, query)


def read_own(node: str, file: Path) -> NodeRow | None:
    """Return the row of this machine's own agent, by its status file; None if there is no such file."""
    try:
        return _judged(node, _UPTIME.read_bytes() + file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return NodeRow(node, "unreadable", one_line(error))


def _ask(
    connection: Connection, namespace: str, timeout: float, pod: _Object, relay: _Object | None
) -> NodeRow:
    """Query one agent. Raises ForbiddenError; any other failure becomes its row."""
    node, name = pod.spec.node_name, pod.metadata.name
    try:
        command = ["cat", str(_UPTIME), str(IN_POD)]
        done = connection.execute(object_path(ObjectRef("Pod", namespace, name)), AGENT, command, timeout)
        if done.returncode:
            why = done.stderr[:_LONGEST_REASON].decode("utf-8", "replace")
            return NodeRow(node, "unreadable", f"its status file can't be read: {why}", pod=name)
        return _judged(node, done.stdout, pod, relay)
    except ForbiddenError:
        raise
    except SourceError as error:
        return NodeRow(node, "not-answering", str(error), pod=name)
