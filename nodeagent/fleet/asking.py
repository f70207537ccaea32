"""Queries the agents, many at a time: each with one `cat` in its pod. EFFECTS: runs programs in pods."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from nodeagent.agent.reporting.health import BeatLimits
from nodeagent.agent.reporting.status_file import (
    AGENT_STATUS_SCHEMA_VERSION,
    AgentStatus,
    VerdictCounts,
    status_path,
)
from nodeagent.config.options import Config
from nodeagent.errors import SourceError
from nodeagent.fleet.roster import AGENT, Seat
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ForbiddenError
from nodeagent.sources.kubernetes.workloads import Container, Executed, NotRunError, execute
from nodeagent.typed_values import from_json

NodeState = Literal["no-pod", "not-ready", "drifted", "not-answering", "unreadable", "in-sync"]
"""The worst first: no agent, agent not working, a component fails, unknown (two), in sync."""

ORDER: tuple[NodeState, ...] = ("no-pod", "not-ready", "drifted", "not-answering", "unreadable", "in-sync")
_AFFECTED: frozenset[NodeState] = frozenset({"no-pod", "not-ready", "drifted"})
_STUCK_SECONDS = BeatLimits().busy + 30
"""A pass may take `busy` seconds without a sign; the liveness probe restarts the agent after that."""


class NodeRow(Struct, frozen=True):
    """What is known of one node.

    Attributes:
        node: its name.
        state: the verdict.
        reason: why, in words; empty for a node that is in sync.
        components: the components that fail or whose repairs another program reverts.
        pod: the pod that was queried; empty if there is none.
        version: the agent's; empty if it did not report one.
        load_balancers: their number by verdict; None if it did not report them.
        hostnames: the same for hostnames.
        last_sync_seconds: the time since everything was last applied; None for never, or if not reported.
    """

    node: str
    state: NodeState
    reason: str = ""
    components: tuple[str, ...] = ()
    pod: str = ""
    version: str = ""
    load_balancers: VerdictCounts | None = None
    hostnames: VerdictCounts | None = None
    last_sync_seconds: float | None = None


class UnreadableAnswerError(ValueError):
    """A node's answer is not a document that this version knows."""


class _Verdict(Struct):
    verdict: str


class _Report(Struct, rename="camel"):
    """The fields of docs/schema/report-v1.json that are read."""

    schema_version: str
    in_sync: bool
    changes: dict[str, Any]
    errors: dict[str, str]
    load_balancers: list[_Verdict]
    names: list[_Verdict]


class _AnyVersion(Struct, rename="camel"):
    schema_version: str = field(default="none")


def unasked(seat: Seat) -> NodeRow | None:
    """Return the row of a node that can't be queried: without a running pod, or not ready; else None."""
    if seat.unreadable:
        return NodeRow(seat.node, "unreadable", seat.unreadable)
    if seat.pod is None:
        words = f"; {seat.silent}" if seat.silent else "; kubectl describe daemonset says why"
        return NodeRow(seat.node, "no-pod", f"no pod of nodeagent on this node{words}")
    if seat.silent:
        return NodeRow(seat.node, "not-answering", seat.silent, pod=seat.pod.name)
    if not seat.pod.running:
        why = seat.pod.trouble or "its container agent is not running"
        return NodeRow(seat.node, "not-ready", why, pod=seat.pod.name)
    return None


def of_document(seat: Seat, answer: bytes) -> NodeRow:
    """Return the row for the output of `cat /proc/uptime FILE`.

    Raises:
        UnreadableAnswerError: it is not such a document, or one of another version.
    """
    line, _, body = answer.partition(b"\n")
    try:
        uptime = float(line.split()[0])
        version = from_json(body, _AnyVersion).schema_version
    except (ValueError, IndexError, msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableAnswerError(f"its status document can't be read: {error}") from error
    if version != AGENT_STATUS_SCHEMA_VERSION:
        raise UnreadableAnswerError(
            f"its status document is of version {version}: use that nodeagent's fleet"
        )
    try:
        status = from_json(body, AgentStatus)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableAnswerError(f"its status document can't be read: {error}") from error
    return _judged(seat, status, max(0.0, uptime - status.written_at))


def of_report(seat: Seat, answer: bytes) -> NodeRow:
    """Return the row for the output of `nodeagent status -o json`.

    Raises:
        UnreadableAnswerError: it is not such a document, or one of another version.
    """
    try:
        report = from_json(answer, _Report)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableAnswerError(f"its answer to `nodeagent status` can't be read: {error}") from error
    changes = [name for name, change in report.changes.items() if change is not None]
    reasons = [f"{name}: {text}" for name, text in report.errors.items()]
    reasons += [f"{name}: to change" for name in changes]
    return NodeRow(
        seat.node,
        "in-sync" if report.in_sync else "drifted",
        "; ".join(reasons),
        tuple(dict.fromkeys((*report.errors, *changes))),
        seat.pod.name if seat.pod else "",
        load_balancers=_counts(report.load_balancers),
        hostnames=_counts(report.names),
    )


def failed(seat: Seat, state: NodeState, reason: str) -> NodeRow:
    """Return the row of a node that did not answer."""
    return NodeRow(seat.node, state, reason, pod=seat.pod.name if seat.pod else "")


def worst_first(rows: Iterable[NodeRow]) -> list[NodeRow]:
    """Return the rows by state, then by name."""
    return sorted(rows, key=lambda row: (ORDER.index(row.state), row.node))


def exit_code(rows: Sequence[NodeRow]) -> int:
    """Return 0 if all are in sync, 2 if one is not, else 1: one could not be queried, or there is none."""
    states = {row.state for row in rows}
    if states & _AFFECTED:
        return 2
    return 0 if states == {"in-sync"} else 1


def _judged(seat: Seat, status: AgentStatus, age: float) -> NodeRow:
    failing = {
        name: component for name, component in status.components.items() if component.state == "failed"
    }
    state: NodeState = "in-sync"
    reasons: list[str] = []
    if age > _STUCK_SECONDS:
        state = "not-ready"
        reasons.append(f"the agent's last report is {age:.0f} s old: it is stuck, or was killed")
    elif status.last_sync_seconds is None:
        state = "not-ready"
        reasons.append("the agent has not applied everything yet")
    elif failing or status.conflicts:
        state = "drifted"
    reasons += [
        f"{name}: failed for {component.failed_seconds + age:.0f} s: {component.reason}"
        for name, component in failing.items()
    ]
    reasons += [f"{name}: another program keeps reverting repairs" for name in status.conflicts]
    if state == "in-sync" and seat.pod is not None and seat.pod.trouble:
        state = "not-ready"
        reasons.append(seat.pod.trouble)
    since = None if status.last_sync_seconds is None else status.last_sync_seconds + age
    return NodeRow(
        seat.node,
        state,
        "; ".join(reasons),
        tuple(dict.fromkeys((*failing, *status.conflicts))),
        seat.pod.name if seat.pod else "",
        status.version,
        status.load_balancers,
        status.names,
        since,
    )


def _counts(decisions: Iterable[_Verdict]) -> VerdictCounts:
    found = Counter(one.verdict for one in decisions)
    return VerdictCounts(found["served"], found["skipped"], found["refused"])


_STATUS_EXITS = frozenset({0, 2})
"""Exit codes of `nodeagent status`: in sync, drifted. With 1, something was unreadable, but it may print."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How agents are queried.

    Attributes:
        connection: to the API server.
        namespace: where the DaemonSet is.
        at_once: how many nodes at a time.
        timeout: seconds for each node.
        run_dir: the agents' `relay.runDir`.
    """

    connection: Connection
    namespace: str
    at_once: int = 64
    timeout: float = 10.0
    run_dir: Path = Path(Config().relay.run_dir)


def ask_all(asking: Asking, roster: Iterable[Seat]) -> Iterator[NodeRow]:
    """Yield a row for each node, in the order in which they answer.

    Raises:
        ForbiddenError: RBAC denies pods/exec, which affects every node.
    """
    pool = ThreadPoolExecutor(asking.at_once, thread_name_prefix="fleet")
    try:
        for answered in as_completed([pool.submit(ask, asking, seat) for seat in roster]):
            yield answered.result()
    finally:
        # On Ctrl-C, or if one error affects every node: running queries end within their time limit.
        pool.shutdown(wait=False, cancel_futures=True)


def ask(asking: Asking, seat: Seat) -> NodeRow:
    """Query one node. Any failure becomes its row; only ForbiddenError is raised."""
    row = unasked(seat)
    if row is not None or seat.pod is None:
        return row or failed(seat, "no-pod", "")
    try:
        return _asked(asking, seat, Container(asking.namespace, seat.pod.name, AGENT))
    except UnreadableAnswerError as error:
        return failed(seat, "unreadable", str(error))
    except ForbiddenError:
        raise
    except SourceError as error:
        return failed(seat, "not-answering", str(error))


def _asked(asking: Asking, seat: Seat, container: Container) -> NodeRow:
    def run(*command: str) -> Executed:
        return execute(asking.connection, container, command, asking.timeout)

    document = str(status_path(asking.run_dir))
    try:
        done = run("cat", "/proc/uptime", document)
    except NotRunError as error:
        done = Executed(1, b"", str(error))
    if done.exit_code == 0:
        return of_document(seat, done.stdout)
    # An agent that is not its node's writer (yet), or one without such a document: this costs the node more.
    report = run("nodeagent", "status", "-o", "json")
    if report.exit_code not in _STATUS_EXITS and not report.stdout:
        last = (report.stderr.strip() or report.failure).splitlines()[-1:]
        reason = f"`nodeagent status` ended with {report.exit_code}: {''.join(last)}"
        return failed(seat, "not-answering", reason)
    return of_report(seat, report.stdout)
