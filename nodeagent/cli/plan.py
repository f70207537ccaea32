"""`nodeagent plan`: the dry run."""

from typing import Any

import click

from nodeagent.agent.comparison import compare
from nodeagent.cli.document import encode
from nodeagent.cli.invocation import adopt_option, common_options, invocation, output_option
from nodeagent.cli.report import report
from nodeagent.cli.terminal import show_text
from nodeagent.cli.text import plan_text

PENDING = 2


@click.command()
@common_options
@output_option
@adopt_option
def plan(output: str, **options: Any) -> int:  # noqa: ANN401 - click's own
    """Show what would change on this node, and why; change nothing.

    Exit code 0: nothing to do. 2: changes are pending. 1: something could not be read.
    """
    call = invocation(**options)
    appliers = call.appliers()
    desired = call.desired(appliers)
    comparison = compare(desired, appliers)
    if output == "json":
        show_text(encode(report("Plan", call.node_name, desired, comparison)))
    else:
        show_text(plan_text(call.node_name, desired, comparison))
    if comparison.errors:
        return 1
    return PENDING if comparison.pending else 0
