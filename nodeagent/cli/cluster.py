"""`nodeagent fleet`, `bundle` and `uninstall`: the commands for a whole cluster."""

import io
import os
import tarfile
import time
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import click
from msgspec import Struct

from nodeagent.cli import invocation
from nodeagent.cli.report import SCHEMA_VERSION, encode, show_answer
from nodeagent.cli.terminal import Styled, show, table
from nodeagent.config.option_types import DnsName
from nodeagent.config.reading import read_config
from nodeagent.coredns.coredns_reconciler import clean_up
from nodeagent.errors import NodeagentError, one_line
from nodeagent.fleet import AGENT, ORDER, RELAY, NodeRow, NodeState, exit_code, read_fleet
from nodeagent.model.objects import ObjectRef
from nodeagent.observe.status import DecisionCounts
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.resources import object_path
from nodeagent.sources.kubernetes.single_requests import delete_and_wait

namespace_option = invocation.option(
    "--namespace",
    metavar="NAME",
    default="nodeagent",
    callback=invocation.parsed(DnsName),
    help="Namespace of nodeagent's DaemonSet.",
)


@click.command(epilog="Example: nodeagent fleet --kubeconfig FILE")
@invocation.kubeconfig_option
@namespace_option
@invocation.timeout_option(300, 10.0, "Time limit for each request to a node.")
@invocation.output_option("fleet-v1")
def fleet(*, kubeconfig: Path | None, namespace: str, timeout: float, output: str) -> int:
    """Show the state of all nodes, worst first.

    Queries each agent through the API server; changes nothing.

    Exit code 0: all nodes are in sync. 2: at least one is known not to be. 1: at least one did not answer and
    the others are in sync, or an error occurred.
    """
    with invocation.connect(kubeconfig) as connection:
        rows = read_fleet(connection, namespace, timeout)
    titles = [Styled(title, bold=True) for title in _TITLES]
    command = f"kubectl -n {namespace} describe daemonset nodeagent"
    notice = f"fleet: no node has, or should have, a pod; see {command}"
    lines = [*table([titles, *map(_cells, rows)]), "", _sum(rows)] if rows else [Styled(notice, "yellow")]
    show_answer(output, fleet_document(rows), lines, wrap=False)
    return exit_code(rows)


_COLOURS: Mapping[NodeState, str] = {
    "no-pod": "red",
    "not-ready": "red",
    "drifted": "red",
    "not-answering": "yellow",
    "unreadable": "yellow",
    "in-sync": "green",
}
Overall = Literal["in-sync", "cannot-tell", "affected"]
"""By exit code."""
_TITLES = ("NODE", "STATE", "COMPONENT", "VERSION", "RELAY", "LBS", "HOSTNAMES", "LAST SYNC", "WHY")


class FleetDocument(Struct, frozen=True, rename="camel"):
    """The answer of `fleet`, the worst node first.

    `overall` is what the exit code says: in-sync 0, affected 2, cannot-tell 1.
    """

    schema_version: Literal["1"]
    kind: Literal["Fleet"]
    overall: Overall
    counts: dict[NodeState, int]
    nodes: list[NodeRow]


def fleet_document(rows: list[NodeRow]) -> FleetDocument:
    """Return the answer of `fleet`; the rows are in order."""
    by_state = Counter(row.state for row in rows)
    counts = {state: by_state[state] for state in ORDER}
    return FleetDocument(SCHEMA_VERSION, "Fleet", get_args(Overall)[exit_code(rows)], counts, rows)


def _age(seconds: float | None) -> str:
    """Return a duration in the largest unit that fits: `42s`, `12m`, `5h`, `3d`."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _cells(row: NodeRow) -> tuple[str | Styled, ...]:
    return (
        row.node,
        Styled(row.state, _COLOURS[row.state]),
        ", ".join(row.components) or "-",
        row.version or "-",
        row.relay_version or "-",
        *map(_served, (row.load_balancers, row.hostnames)),
        _age(row.last_sync_seconds),
        row.reason,
    )


def _served(counts: DecisionCounts | None) -> str:
    if counts is None:
        return "-"
    return f"{counts.served}" + (f" ({counts.refused} refused)" if counts.refused else "")


def _sum(rows: list[NodeRow]) -> Styled:
    counts = Counter(row.state for row in rows)
    others = ", ".join(f"{counts[state]} {state}" for state in ORDER[:-1] if counts[state])
    worst = next(state for state in ORDER if counts[state])
    line = f"fleet: {counts['in-sync']} of {len(rows)} nodes in sync" + (f"; {others}" if others else "")
    return Styled(line, _COLOURS[worst])


_WORST = 3
_SHOWN = 5
_LOG_LINES = 2000
_COMMANDS = {
    "status.json": ["nodeagent", "status", "-o", "json"],
    "doctor.json": ["nodeagent", "doctor", "-o", "json"],
    "nodeagent.yaml": ["cat", "/etc/nodeagent/nodeagent.yaml"],
}
_LOGS = {f"log-{container}.txt": container for container in (AGENT, RELAY)}


@click.command(epilog="Example: nodeagent bundle --node node3")
@invocation.kubeconfig_option
@namespace_option
@invocation.timeout_option(300, 90.0, "Time limit for each request; the doctor may need a minute.")
@invocation.option(
    "--node", "nodes", metavar="NAME", multiple=True, help="A node to include; default: the worst three."
)
@invocation.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Archive to write."
)
def bundle(
    *, kubeconfig: Path | None, namespace: str, timeout: float, nodes: tuple[str, ...], output: Path | None
) -> int:
    """Write one archive for a bug report, and list its contents.

    It holds what `fleet`, `status` and `doctor` report, and the agents' configuration and logs. None of these
    contains a password or a token; hostnames, addresses and names of objects are readable. Nothing is sent.

    Exit code 0: written; it lists what could not be read. 1: an error; nothing was written.
    """
    file = output or Path(time.strftime("nodeagent-bundle-%Y%m%d-%H%M%S.tar.gz"))
    contents = ["This archive contains:"]
    members: dict[str, bytes] = {}
    _write(file, {})  # what can't be written is said before the minute of work
    file.unlink()
    with invocation.connect(kubeconfig) as connection:
        rows = read_fleet(connection, namespace, timeout)
        pods = {row.node: row for row in rows if row.pod}
        if unknown := [node for node in nodes if node not in pods]:
            known = ", ".join([*pods][:_SHOWN]) or "none"
            raise NodeagentError(
                f"--node {unknown[0]}: no node of that name has a pod of nodeagent; nothing was written. "
                f"Nodes with one: {known}{', ...' if len(pods) > _SHOWN else ''}"
            )
        members["fleet.json"] = encode(fleet_document(rows)).encode()
        contents.append(f"  fleet.json ({len(members['fleet.json'])} bytes)")
        for node, name in product(nodes or list(pods)[:_WORST], (*_COMMANDS, *_LOGS)):
            path = f"nodes/{node}/{name}"
            try:
                members[path] = _read(connection, namespace, pods[node], name, timeout)
                contents.append(f"  {path} ({len(members[path])} bytes)")
            except NodeagentError as error:
                contents.append(f"  {path}: not available: {one_line(str(error))}")
    _write(file, {"CONTENTS.txt": "\n".join([*contents, ""]).encode(), **members})
    show([*contents, "", f"{file}: written"])
    return 0


def _read(connection: Connection, namespace: str, row: NodeRow, name: str, timeout: float) -> bytes:
    pod_name = row.relay_pod if _LOGS.get(name) == RELAY else row.pod
    if not pod_name:
        raise NodeagentError("no relay pod on this node")
    pod = object_path(ObjectRef("Pod", namespace, pod_name))
    if name in _LOGS:
        query = {"container": _LOGS[name], "tailLines": str(_LOG_LINES), "timestamps": "true"}
        return connection.get_text(f"{pod}/log", query, timeout)
    command = _COMMANDS[name]
    completed = connection.execute(pod, AGENT, command, timeout)
    # Exit codes of nodeagent's own commands are answers; without any output they are failures.
    if completed.returncode and not completed.stdout:
        raise NodeagentError(f"{' '.join(command)}: {completed.stderr[-500:].decode('utf-8', 'replace')}")
    return completed.stdout


def _write(file: Path, members: dict[str, bytes]) -> None:
    """Write the archive, whole or not at all; a file that exists is left."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
                for path, data in members.items():
                    info = tarfile.TarInfo(f"{file.name.removesuffix('.tar.gz')}/{path}")
                    info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
                    archive.addfile(info, io.BytesIO(data))
        except BaseException:
            file.unlink()
            raise
    except OSError as error:
        raise NodeagentError(
            f"{file}: can't be written: {error.strerror}; nothing was written. Give another --output"
        ) from error


@click.command(epilog="Example: nodeagent uninstall --timeout 1800")
@invocation.cluster_options
@invocation.object_option("--daemonset", "DaemonSet", "nodeagent/nodeagent", "The agents' DaemonSet.")
@invocation.object_option(
    "--relay-daemonset",
    "DaemonSet",
    "nodeagent/nodeagent-relay",
    "The relays' DaemonSet; empty if not installed.",
    optional=True,
)
@invocation.object_option(
    "--coredns-deployment",
    "Deployment",
    "nodeagent/nodeagent-coredns",
    "The Deployment of `nodeagent coredns run`; empty if not installed.",
    optional=True,
)
@invocation.timeout_option(
    86400, 600.0, "Time limit for the pods to end. A relay ends with its last connection."
)
def uninstall(  # noqa: PLR0913 - the options
    *,
    config: Path | None,
    kubeconfig: Path | None,
    daemonset: ObjectRef,
    relay_daemonset: ObjectRef | None,
    coredns_deployment: ObjectRef | None,
    timeout: float,
) -> int:
    """Remove nodeagent from the cluster and its nodes, in order.

    First nodeagent's entries in CoreDNS, then the agents: each cleans up its node while its permissions still
    exist. Then the relays, to which nothing leads any more. Returns when the last pod has ended; the
    other objects are yours to delete.

    Exit code 0: done. 1: something is left; run it again.
    """
    deadline = time.monotonic() + timeout
    options = read_config(config)

    def delete(workload: ObjectRef) -> bool:
        return delete_and_wait(connection, workload, deadline - time.monotonic(), report)

    with invocation.connect(kubeconfig) as connection, invocation.removing() as report:
        if coredns_deployment:
            if delete(coredns_deployment):
                report(f"{coredns_deployment}: deleted")
            clean_up(connection, options, report)
        outcome = "does not exist; on a node, `nodeagent cleanup` removes what it left"
        if delete(daemonset):
            outcome = "deleted; its pods have ended"
        report(f"{daemonset}: {outcome}")
        if relay_daemonset and delete(relay_daemonset):
            report(f"{relay_daemonset}: deleted; its pods have ended")
    return 0
