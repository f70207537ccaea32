"""`nodeagent apply`: make it so, once."""

from typing import Any

import click

from nodeagent.agent.convergence import converge
from nodeagent.cli.invocation import adopt_option, common_options, invocation
from nodeagent.cli.terminal import show_text
from nodeagent.cli.text import convergence_text


@click.command()
@common_options
@adopt_option
def apply(**options: Any) -> int:  # noqa: ANN401 - click's own
    """Make this node as `nodeagent plan` shows, once.

    Exit code 0: done, or nothing to do. 1: a part failed; the rest was done.
    """
    call = invocation(**options)
    appliers = call.appliers()
    with call.exclusively():
        done = converge(call.desired(appliers), appliers)
    show_text(convergence_text(call.node_name, done, "in sync, nothing to do"))
    return 1 if done.errors else 0
