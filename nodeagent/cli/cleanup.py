"""`nodeagent cleanup`: leave no trace."""

from pathlib import Path
from typing import Any

import click

from nodeagent.agent.convergence import clean_up
from nodeagent.agent.telemetry.listening import remove_stale
from nodeagent.agent.telemetry.status_file import remove_status
from nodeagent.cli.invocation import common_options, invocation
from nodeagent.cli.terminal import show_text
from nodeagent.cli.text import convergence_text


@click.command()
@common_options
def cleanup(**options: Any) -> int:  # noqa: ANN401 - click's own
    """Remove every trace of nodeagent from this node: hosts lines, DNAT, relay, addresses.

    Needs no cluster. Exit code 0: nothing is left. 1: something could not be removed.
    """
    call = invocation(**options)
    appliers = call.appliers()
    with call.exclusively():
        done = clean_up(appliers)
        # Sockets and the document of agents that were killed: they would keep the run directory.
        remove_stale(Path(call.config.relay.run_dir))
        remove_status(Path(call.config.relay.run_dir))
    show_text(convergence_text(call.node_name, done, "nothing of nodeagent stands here"))
    return 1 if done.errors else 0
