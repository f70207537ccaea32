"""The options that commands share, and what they mean. Every option is also an environment variable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nodeagent.config.option_types import ListenAddress
from nodeagent.errors import ConfigError

PENDING = 2
"""The exit code of a plan with changes to make."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def option(name: str, *short: str, **attributes: Any) -> Callable[[_Command], _Command]:  # noqa: ANN401 - click's
    """Return an option that may also be given as an environment variable: NODEAGENT_ and its name."""
    variable = f"NODEAGENT_{name.lstrip('-').upper().replace('-', '_')}"
    return click.option(name, *short, envvar=variable, show_envvar=True, **attributes)


def running_options(command: _Command) -> _Command:
    """Add the options that every command has, `run` included."""
    for add in (_NODE, _KUBECONFIG, _CONFIG):
        command = add(command)
    return command


def cluster_options(command: _Command) -> _Command:
    """Add the options of commands for a cluster, and not for one of its nodes."""
    for add in (_KUBECONFIG, _CONFIG):
        command = add(command)
    return command


def common_options(command: _Command) -> _Command:
    """Add the options of every command that can work on manifests."""
    for add in (_NODE, _KUBECONFIG, _MANIFESTS, _CONFIG):
        command = add(command)
    return command


_PATH = click.Path(path_type=Path)
_CONFIG = option(
    "--config", type=_PATH, metavar="FILE", help="Configuration file (YAML); default: built-in values."
)
_MANIFESTS = option(
    "--manifests",
    type=_PATH,
    metavar="DIR",
    help="Read API objects from YAML or JSON files instead of a cluster.",
)
_KUBECONFIG = option(
    "--kubeconfig",
    type=_PATH,
    metavar="FILE",
    help="Kubeconfig file; default: in-cluster, then ~/.kube/config.",
)
_NODE = option("--node", metavar="NAME", help="This node's name in the cluster; default: the host name.")
output_option = option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format; json: docs/schema/report-v1.json.",
)
adopt_option = option(
    "--adopt", is_flag=True, help="Take over from hairpin-proxy: remove its lines from the hosts file."
)


# For commands that keep running: how they log, and where they show their pages.


_LOG_FORMAT = option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log format on standard error.",
)
_LOG_LEVEL = option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Minimum log level.",
)
telemetry_option = option(
    "--telemetry-listen",
    metavar="ADDRESS:PORT",
    help="Listen address; overrides telemetry.listen.",
)


def log_options(command: _Command) -> _Command:
    """Add the options of the log."""
    for add in (_LOG_LEVEL, _LOG_FORMAT):
        command = add(command)
    return command


def listen_address(text: str | None) -> ListenAddress | None:
    """Return what `--telemetry-listen` says. Raises ConfigError."""
    try:
        return ListenAddress.parse(text) if text else None
    except ValueError as error:
        raise ConfigError(f"--telemetry-listen: {error}") from error


def object_name(option_name: str, text: str) -> tuple[str, str]:
    """Return the namespace and name that an option gives as NAMESPACE/NAME. Raises ConfigError."""
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise ConfigError(f"{option_name} {text!r}: write it as NAMESPACE/NAME")
    return namespace, name
