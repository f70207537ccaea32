"""`nodeagent status`: what stands on this node."""

from typing import Any

import click

from nodeagent.agent.comparison import compare
from nodeagent.agent.standing import read_standing
from nodeagent.cli.document import encode
from nodeagent.cli.invocation import common_options, invocation, output_option
from nodeagent.cli.report import report
from nodeagent.cli.terminal import show_text
from nodeagent.cli.text import status_text

DRIFTED = 2


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
    standing = read_standing(desired, appliers)
    if output == "json":
        show_text(encode(report("Status", call.node_name, desired, comparison, standing)))
    else:
        show_text(status_text(call.node_name, desired, comparison, standing))
    if comparison.errors:
        return 1
    silent = any(not found.answers for found in standing.values())
    return DRIFTED if comparison.pending or silent else 0
