"""`nodeagent status`: what stands on this node."""

from dataclasses import replace
from typing import Any

import click

from nodeagent.agent.comparison import compare
from nodeagent.agent.noticing import DRIFT
from nodeagent.agent.standing import read_standing
from nodeagent.agent.telemetry.probe import NoAgentError, ask
from nodeagent.cli.document import encode
from nodeagent.cli.invocation import common_options, invocation, output_option
from nodeagent.cli.report import report
from nodeagent.cli.terminal import show_text
from nodeagent.cli.text import status_text

DRIFTED = 2


def _unnoticed(run_dir: str) -> list[str]:
    """What the running agent says of its watches; nothing where there is none, or all is well."""
    try:
        _, page = ask(run_dir, "/readyz")
    except NoAgentError:
        return []
    bad = [line for line in page.split("\n") if line.startswith(f"{DRIFT}: failed")]
    return [f"the agent's watches: {line.removeprefix(f'{DRIFT}: ')}" for line in bad]


@click.command()
@common_options
@output_option
def status(output: str, **options: Any) -> int:  # noqa: ANN401 - click's own
    """Show what stands on this node for each load balancer and each name, with reasons.

    Exit code 0: in sync. 2: drifted. 1: something could not be read.
    """
    call = invocation(**options)
    appliers = call.appliers()
    desired = call.desired(appliers)
    comparison = compare(desired, appliers)
    comparison = replace(
        comparison, remarks=(*comparison.remarks, *_unnoticed(str(call.config.relay.run_dir)))
    )
    standing = read_standing(desired, appliers)
    if output == "json":
        show_text(encode(report("Status", call.node_name, desired, comparison, standing)))
    else:
        show_text(status_text(call.node_name, desired, comparison, standing))
    if comparison.errors:
        return 1
    silent = any(not found.answers for found in standing.values())
    return DRIFTED if comparison.pending or silent else 0
