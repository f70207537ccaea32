"""The `nodeagent` command: its subcommands and its exit codes."""

import sys
from collections.abc import Sequence

import click

from nodeagent import __version__
from nodeagent.cli.bundle import bundle
from nodeagent.cli.coredns import coredns
from nodeagent.cli.doctor import doctor
from nodeagent.cli.fleet import fleet
from nodeagent.cli.on_node import apply, cleanup, plan, status
from nodeagent.cli.run import run as run_command
from nodeagent.cli.terminal import block, show
from nodeagent.cli.uninstall import uninstall
from nodeagent.errors import NodeagentError

ERROR = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="nodeagent %(version)s")
def nodeagent() -> None:
    """Keeps a node's own traffic to PROXY-protocol load balancers working."""


for command in (plan, apply, run_command, status, doctor, fleet, bundle, cleanup, coredns, uninstall):
    nodeagent.add_command(command)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code.

    0 done or nothing to do; 1 an error, told on standard error; 2 changes pending (plan) or drift
    (status). A usage error is 1 too, so that 2 has one meaning.
    """
    try:
        result = nodeagent.main(args=list(arguments), prog_name="nodeagent", standalone_mode=False)
    except click.ClickException as error:
        error.show(sys.stderr)
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        show(["interrupted; whatever step was under way is whole or undone"], error=True)
        return ERROR
    except NodeagentError as error:
        show(block(f"nodeagent: {error}"), error=True)
        return ERROR
    return result if isinstance(result, int) else 0
