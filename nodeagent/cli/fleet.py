"""`nodeagent fleet`: all nodes of the cluster in one table, the worst first."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from nodeagent.cli.fleet_report import document, fleet_lines
from nodeagent.cli.options import cluster_options, option
from nodeagent.cli.terminal import block, show, show_text
from nodeagent.config.reading import read_config
from nodeagent.errors import SourceError
from nodeagent.fleet.asking import Asking, NodeRow, ask_all, exit_code
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
    """Rounds until Ctrl-C. That the API server did not answer is shown; it may in the next round."""
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
    """A bar on standard error while it is a terminal; gone when it is full."""
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
