"""`nodeagent plan`, `apply` and `status`: the commands that act once, on this node, with a cluster."""

from dataclasses import replace
from typing import Any

import click

from nodeagent.agent.convergence import compare, converge
from nodeagent.agent.reporting.health import DRIFT
from nodeagent.agent.reporting.probe import NoAgentError, ask
from nodeagent.cli.command_options import PENDING, adopt_option, common_options, output_option
from nodeagent.cli.document import encode
from nodeagent.cli.invocation import invocation
from nodeagent.cli.report import report
from nodeagent.cli.terminal import show_text
from nodeagent.cli.text import convergence_text, plan_text, status_text
from nodeagent.components.node import read_listener_status


@click.command(epilog="Example: nodeagent plan --config /etc/nodeagent.yaml")
@common_options
@output_option
@adopt_option
def plan(output: str, **options: Any) -> int:  # noqa: ANN401 - click's own
    """Show what would change on this node, and why; change nothing.

    Exit code 0: nothing to do. 2: changes are pending. 1: something could not be read.
    """
    call = invocation(**options)
    actual = call.actual_state()
    desired = call.desired(actual)
    comparison = compare(desired, actual)
    if output == "json":
        show_text(encode(report("Plan", call.node_name, desired, comparison)))
    else:
        show_text(plan_text(call.node_name, desired, comparison))
    if comparison.errors:
        return 1
    return PENDING if comparison.pending else 0


@click.command(epilog="Example: nodeagent apply --config /etc/nodeagent.yaml")
@common_options
@adopt_option
def apply(**options: Any) -> int:  # noqa: ANN401 - click's own
    """Apply the changes that `nodeagent plan` shows, once.

    Exit code 0: done, or nothing to do. 1: a component failed; the others were applied.
    """
    call = invocation(**options)
    actual = call.actual_state()
    with call.exclusively():
        done = converge(call.desired(actual), actual)
    show_text(convergence_text(call.node_name, done, "in sync, nothing to do"))
    return 1 if done.errors else 0


DRIFTED = 2


def _unnoticed(run_dir: str) -> list[str]:
    """Return what the running agent reports about its watches; empty if none runs, or all is well."""
    try:
        _, page = ask(run_dir, "/readyz")
    except NoAgentError:
        return []
    bad = [line for line in page.split("\n") if line.startswith(f"{DRIFT}: failed")]
    return [f"the agent's watches: {line.removeprefix(f'{DRIFT}: ')}" for line in bad]


@click.command(epilog="Example: nodeagent status --output json")
@common_options
@output_option
def status(output: str, **options: Any) -> int:  # noqa: ANN401 - click's own
    """Show the actual state of this node, with reasons.

    Lists each load balancer and each hostname.

    Exit code 0: in sync. 2: drifted. 1: something could not be read.
    """
    call = invocation(**options)
    actual = call.actual_state()
    desired = call.desired(actual)
    comparison = compare(desired, actual)
    comparison = replace(comparison, notes=(*comparison.notes, *_unnoticed(str(call.config.relay.run_dir))))
    listeners = read_listener_status(desired, actual)
    if output == "json":
        show_text(encode(report("Status", call.node_name, desired, comparison, listeners)))
    else:
        show_text(status_text(call.node_name, desired, comparison, listeners))
    if comparison.errors:
        return 1
    silent = any(not found.answers for found in listeners.values())
    return DRIFTED if comparison.pending or silent else 0
