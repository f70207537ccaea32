"""`nodeagent cleanup`: it needs no cluster and no decisions, and imports no code for them."""

from pathlib import Path

import click

from nodeagent.agent.convergence import clean_up
from nodeagent.agent.reporting.socket_path import remove_stale
from nodeagent.agent.reporting.status_file import remove_status
from nodeagent.agent.writer.node_lock import LOCK_SECONDS, exclusive
from nodeagent.cli.command_options import common_options
from nodeagent.cli.terminal import show_text
from nodeagent.cli.text import convergence_text
from nodeagent.components.node import build_components
from nodeagent.config.reading import read_config
from nodeagent.sources.node.identity import default_node_name


@click.command(epilog="Example: nodeagent cleanup")
@common_options
def cleanup(config: Path | None, node: str | None, **_: Path | None) -> int:
    """Remove everything that nodeagent set up on this node.

    That is: its lines in the hosts file, DNAT rules, relay and relay addresses. Needs no cluster.
    If relay.runDir, relay.interface, the relay ranges or hosts.file are not the default, pass the
    configuration that set them up.

    Exit code 0: nothing is left. 1: something could not be removed.
    """
    options = read_config(config)
    node_name = node or default_node_name()
    run_dir = Path(options.relay.run_dir)
    components = build_components(options, adopt=False)
    with exclusive(run_dir, LOCK_SECONDS):
        done = clean_up(components)
        # Sockets and the document of agents that were killed: they would keep the run directory.
        remove_stale(str(run_dir))
        remove_status(run_dir)
    show_text(convergence_text(node_name, done, "nothing of nodeagent is left here"))
    return 1 if done.errors else 0
