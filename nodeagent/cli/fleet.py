"""`nodeagent fleet`: all nodes of the cluster in one table, the worst first."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import click
from msgspec import Struct

from nodeagent.cli.command_options import (
    connect,
    kubeconfig_option,
    option,
    output_option,
    seconds_option,
)
from nodeagent.cli.report import SCHEMA_VERSION, show_answer
from nodeagent.cli.terminal import Line, Styled, table
from nodeagent.fleet import ORDER, NodeRow, NodeState, exit_code, read_fleet
from nodeagent.runtime.status import DecisionCounts

namespace_option = option(
    "--namespace",
    metavar="NAME",
    default="nodeagent",
    help="Namespace of nodeagent's DaemonSet.",
)
timeout_option = seconds_option("--timeout", 1, 300, 10.0, "Time limit for each request to a node.")


@click.command(epilog="Example: nodeagent fleet --kubeconfig FILE")
@kubeconfig_option
@namespace_option
@timeout_option
@output_option("fleet-v1")
def fleet(*, kubeconfig: Path | None, namespace: str, timeout: float, output: str) -> int:
    """Show the state of all nodes, worst first.

    Queries each agent through the API server; changes nothing.

    Exit code 0: all nodes are in sync. 2: at least one is known not to be. 1: at least one did not answer and
    the others are in sync, or an error occurred.
    """
    with connect(kubeconfig) as connection:
        rows = read_fleet(connection, namespace, timeout)
    show_answer(output, fleet_document(rows), fleet_lines(rows))
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
_OVERALL: tuple[Overall, ...] = ("in-sync", "cannot-tell", "affected")
"""By exit code."""
_TITLES = ("NODE", "STATE", "COMPONENT", "VERSION", "LBS", "HOSTNAMES", "LAST SYNC", "WHY")


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
    found = Counter(row.state for row in rows)
    counts = {state: found[state] for state in ORDER}
    return FleetDocument(SCHEMA_VERSION, "Fleet", _OVERALL[exit_code(rows)], counts, rows)


def fleet_lines(rows: list[NodeRow]) -> list[Line]:
    """Return the table, and a line that sums it up."""
    titles = [Styled(title, bold=True) for title in _TITLES]
    return [*table([titles, *map(_cells, rows)]), "", _sum(rows)]


def age(seconds: float) -> str:
    """Return a duration in the largest unit that fits: `42s`, `12m`, `5h`, `3d`."""
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
        _served(row.load_balancers),
        _served(row.hostnames),
        "-" if row.last_sync_seconds is None else age(row.last_sync_seconds),
        row.reason,
    )


def _served(counts: DecisionCounts | None) -> str:
    """Return `3 served`, with the rejected ones; skipped ones don't matter here."""
    if counts is None:
        return "-"
    return f"{counts.served}" + (f" ({counts.refused} refused)" if counts.refused else "")


def _sum(rows: list[NodeRow]) -> Styled:
    if not rows:
        return Styled("fleet: no node has, or should have, a pod of nodeagent", "yellow")
    counts = Counter(row.state for row in rows)
    others = ", ".join(f"{counts[state]} {state}" for state in ORDER[:-1] if counts[state])
    worst = next(state for state in ORDER if counts[state])
    text = f"fleet: {counts['in-sync']} of {len(rows)} nodes in sync" + (f"; {others}" if others else "")
    return Styled(text, _COLOURS[worst])
