"""The `nodeagent` command: its subcommands and its exit codes."""

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from errno import EDQUOT, ENOSPC
from importlib import import_module

import click

from nodeagent import __version__
from nodeagent.cli.terminal import show_error
from nodeagent.errors import ConfigError, NodeagentError, SourceError, quoted

ERROR = 1

_MODULES = {
    "plan": "on_node",
    "apply": "on_node",
    "run": "run",
    "status": "on_node",
    "doctor": "doctor",
    "fleet": "cluster",
    "bundle": "cluster",
    "cleanup": "on_node",
    "coredns": "coredns",
    "uninstall": "cluster",
}


class Commands(click.Group):
    """Commands; a name that is none of theirs is answered with the nearest, or all."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of a command line. Raises UsageError."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            options = [option for parameter in self.get_params(ctx) for option in parameter.opts]
            near = get_close_matches(args[0], [*names, *options], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(names)}"
            ctx.fail(f"No such command {quoted(args[0])}: {hint}")
        return super().resolve_command(ctx, args)


class _Commands(Commands):
    """The subcommands, each imported when it is called: the daemon has none of the others in memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        module = _MODULES.get(cmd_name)
        command: click.Command | None
        command = getattr(import_module(f"nodeagent.cli.{module}"), cmd_name) if module else None
        return command


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: nodeagent doctor",
)
@click.version_option(__version__, "--version", "-V", message="nodeagent %(version)s")
def nodeagent() -> None:
    """Keep a node's own traffic to PROXY-protocol load balancers working."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 1 for an error, which is shown on standard error.

    A usage error is 1, too, so that 2 has one meaning: something is pending, drifted or affected.
    """
    try:
        result = nodeagent.main(args=list(arguments), prog_name="nodeagent", standalone_mode=False)
    except click.ClickException as error:
        error.show(sys.stderr)
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        show_error("interrupted; the step in progress was either finished or undone")
        return ERROR
    except NodeagentError as error:
        # No command changes anything before it has read all; `invocation.removing` says what is left.
        own_line = "\nNothing was changed." * isinstance(error, ConfigError)
        unsaid = own_line or "; nothing was changed" * isinstance(error, SourceError)
        show_error(f"nodeagent: {error}{'' if 'othing was changed' in str(error) else unsaid}")
        return ERROR
    except OSError as error:
        if error.errno not in {ENOSPC, EDQUOT} or error.filename:  # of another file
            raise
        # What was not written would fail once more when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        show_error(f"nodeagent: the output could not be written: {error.strerror}")
        return ERROR
    return result if isinstance(result, int) else 0
