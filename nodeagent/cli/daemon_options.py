"""The options of commands that run on: how they log, and where they show their pages."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nodeagent.cli.invocation import option
from nodeagent.config.options import ListenAddress
from nodeagent.errors import ConfigError

_Command = TypeVar("_Command", bound=Callable[..., Any])

_LOG_FORMAT = option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the log is written to standard error.",
)
_LOG_LEVEL = option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="From which level on.",
)
telemetry_option = option(
    "--telemetry-listen",
    metavar="ADDRESS:PORT",
    help="This process's own, where telemetry.listen of the configuration would be the same for all.",
)


def log_options(command: _Command) -> _Command:
    """Adds the options of the log."""
    for add in (_LOG_LEVEL, _LOG_FORMAT):
        command = add(command)
    return command


def listen_address(text: str | None) -> ListenAddress | None:
    """What `--telemetry-listen` says. Raises ConfigError."""
    try:
        return ListenAddress.parse(text) if text else None
    except ValueError as error:
        raise ConfigError(f"--telemetry-listen: {error}") from error
