"""`nodeagent fleet`: all nodes of the cluster in one table, the worst first."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import click
import msgspec
from msgspec import Struct

from nodeagent.agent.reporting.status_file import VerdictCounts
from nodeagent.cli.command_options import cluster_options, option
from nodeagent.cli.terminal import Line, Styled, block, show, show_text
from nodeagent.config.reading import read_config
from nodeagent.errors import SourceError, one_line
from nodeagent.fleet.asking import ORDER, Asking, NodeRow, NodeState, ask_all, exit_code, worst_first
from nodeagent.fleet.asking import NodeRow as Row
from nodeagent.fleet.roster import read_roster
from nodeagent.sources.kubernetes.connection import connect

namespace_option = option(
    "--namespace",
    metavar="NAME",
    default="nodeagent",
    show_default=True,
    help="Namespace of nodeagent's DaemonSet.",
)
timeout_option = option(
    "--timeout",
    type=click.FloatRange(1, 300),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="Time limit for each request to a node.",
)


@click.command(epilog="Example: nodeagent fleet --watch")
@cluster_options
@namespace_option
@timeout_option
@option(
    "--at-once",
    type=click.IntRange(1, 256),
    metavar="COUNT",
    default=64,
    show_default=True,
    help="Number of nodes to query at the same time.",
)
@option("--watch", is_flag=True, help="Repeat until interrupted.")
@option(
    "--interval",
    type=click.FloatRange(1, 3600),
    metavar="SECONDS",
    default=15.0,
    show_default=True,
    help="With --watch: pause between two rounds.",
)
@option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format; json: docs/schema/fleet-v1.json.",
)
def fleet(  # noqa: PLR0913 - the options
    *,
    config: Path | None,
    kubeconfig: Path | None,
    namespace: str,
    timeout: float,
    at_once: int,
    watch: bool,
    interval: float,
    output: str,
) -> int:
    """Show the state of all nodes, worst first.

    Queries each agent through the API server; changes nothing.

    Exit code 0: all nodes are in sync. 2: at least one is known not to be. 1: at least one did not answer and
    the others are in sync, or an error occurred. With --watch: the code of the last round.
    """
    options = read_config(config)
    with connect(kubeconfig) as connection:
        asking = Asking(connection, namespace, at_once, timeout, Path(options.relay.run_dir))
        if not watch:
            rows = list(_round(asking))
            _show(rows, output)
            return exit_code(rows)
        return _watch(asking, interval, output)


def _watch(asking: Asking, interval: float, output: str) -> int:
    """Run rounds until Ctrl-C. If the API server does not answer, show that; it might in the next round."""
    code = 1
    try:
        while True:
            try:
                rows = list(_round(asking))
            except SourceError as error:
                code = 1
                show(block(f"nodeagent: {error}; querying again in {interval:.0f} s"), error=True)
            else:
                code = exit_code(rows)
                if output == "text":
                    click.clear()
                _show(rows, output)
            time.sleep(interval)
    except KeyboardInterrupt:
        return code


def _round(asking: Asking) -> Iterator[NodeRow]:
    roster = read_roster(asking.connection, asking.namespace)
    with _progress(len(roster)) as advance:
        for row in ask_all(asking, roster):
            advance()
            yield row


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Yield a bar on standard error if that is a terminal; it disappears when it is full."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes 50 ms to import
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - the same

    columns = (TextColumn("querying nodes"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("nodes", total=total)
        yield lambda: progress.advance(task)


def _show(rows: list[NodeRow], output: str) -> None:
    if output == "json":
        show_text(document(rows))
    else:
        show(fleet_lines(rows))


FLEET_SCHEMA_VERSION: Final = "1"
"""Raised whenever a field or state is removed or changes its meaning; new ones alone do not raise it."""


class FleetNode(Struct, frozen=True, rename="camel"):
    """One node.

    `reason` says why it is not in sync, `components` which of them are concerned. What the agent did not say
    is null, or empty for `pod` and `version`; `lastSyncSeconds` is the age of the last full sync.
    """

    node: str
    state: NodeState
    reason: str
    components: list[str]
    pod: str
    version: str
    load_balancers: VerdictCounts | None
    hostnames: VerdictCounts | None
    last_sync_seconds: float | None


class FleetDocument(Struct, frozen=True, rename="camel"):
    """The whole answer, the worst node first.

    `overall` is what the exit code says: in-sync 0, affected 2, cannot-tell 1.
    """

    schema_version: Literal["1"]
    kind: Literal["Fleet"]
    overall: Literal["in-sync", "affected", "cannot-tell"]
    counts: dict[NodeState, int]
    nodes: list[FleetNode]


def document(rows: Iterable[Row]) -> str:
    """Return the answer as indented JSON with a final newline. Pure."""
    ordered = worst_first(rows)
    counts = Counter(row.state for row in ordered)
    found = FleetDocument(
        schema_version=FLEET_SCHEMA_VERSION,
        kind="Fleet",
        overall=("in-sync", "cannot-tell", "affected")[exit_code(ordered)],
        counts={state: counts[state] for state in ORDER},
        nodes=[
            FleetNode(
                row.node,
                row.state,
                row.reason,
                list(row.components),
                row.pod,
                row.version,
                row.load_balancers,
                row.hostnames,
                row.last_sync_seconds,
            )
            for row in ordered
        ],
    )
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


# The fleet as a table for a person, the worst node first. Pure.


_COLOURS: Mapping[NodeState, str] = {
    "no-pod": "red",
    "not-ready": "red",
    "drifted": "red",
    "not-answering": "yellow",
    "unreadable": "yellow",
    "in-sync": "green",
}
_TITLES = ("NODE", "STATE", "COMPONENT", "VERSION", "LBS", "HOSTNAMES", "LAST SYNC")


def fleet_lines(rows: Iterable[NodeRow]) -> list[Line]:
    """Return the table, and a line that sums it up."""
    ordered = worst_first(rows)
    cells = [_cells(row) for row in ordered]
    widths = [max(map(len, column)) for column in zip(_TITLES, *cells, strict=True)]
    lines: list[Line] = [Styled("  ".join((*_padded(_TITLES, widths), "WHY")), bold=True)]
    for row, texts in zip(ordered, cells, strict=True):
        node, state, *others = _padded(texts, widths)
        why = one_line(row.reason)
        lines.append((f"{node}  ", Styled(state, _COLOURS[row.state]), "  ", "  ".join((*others, why))))
    return [*lines, "", _sum(ordered)]


def age(seconds: float) -> str:
    """Return a duration in the largest unit that fits: `42s`, `12m`, `5h`, `3d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _cells(row: NodeRow) -> tuple[str, ...]:
    cells = (
        row.node,
        row.state,
        ", ".join(row.components),
        row.version,
        _served(row.load_balancers),
        _served(row.hostnames),
        "" if row.last_sync_seconds is None else age(row.last_sync_seconds),
    )
    return tuple(one_line(cell) or "-" for cell in cells)


def _served(counts: VerdictCounts | None) -> str:
    """Return `3 served`, with the rejected ones; skipped ones don't matter here."""
    if counts is None:
        return ""
    return f"{counts.served}" + (f" ({counts.refused} refused)" if counts.refused else "")


def _padded(texts: Iterable[str], widths: Iterable[int]) -> Iterator[str]:
    return (f"{text:{width}}" for text, width in zip(texts, widths, strict=True))


def _sum(rows: list[NodeRow]) -> Styled:
    if not rows:
        return Styled("fleet: no node has, or should have, a pod of nodeagent", "yellow")
    counts = Counter(row.state for row in rows)
    others = ", ".join(f"{counts[state]} {state}" for state in ORDER[:-1] if counts[state])
    worst = next(state for state in ORDER if counts[state])
    text = f"fleet: {counts['in-sync']} of {len(rows)} nodes in sync" + (f"; {others}" if others else "")
    return Styled(text, _COLOURS[worst])
