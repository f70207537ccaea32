"""The options that commands share, and what they mean. Every option is also an environment variable."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from nodeagent.config.option_types import ListenAddress
from nodeagent.errors import ConfigError
from nodeagent.model.objects import ObjectRef

PENDING = 2
"""The exit code of a plan with changes to make."""

if TYPE_CHECKING:
    from nodeagent.sources.kubernetes.connection import Connection

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Option(click.Option):
    """An option whose errors name what was typed: itself, or its variable."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return how an error calls it."""
        given = ctx.get_parameter_source(self.name or "") if ctx else None
        if given is ParameterSource.ENVIRONMENT and isinstance(self.envvar, str):
            return f"'{self.envvar}'"
        return " / ".join(f"'{each}'" for each in self.opts)


def option(name: str, *short: str, **attributes: Any) -> Callable[[_Command], _Command]:  # noqa: ANN401 - click's
    """Return an option that may also be given as an environment variable: NODEAGENT_ and its name."""
    variable = f"NODEAGENT_{name.lstrip('-').upper().replace('-', '_')}"
    attributes.setdefault("show_default", bool(attributes.get("default")))
    return click.option(name, *short, cls=_Option, envvar=variable, show_envvar=True, **attributes)


def _together(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    def add(command: _Command) -> _Command:
        for one in options:
            command = one(command)
        return command

    return add


_PATH = click.Path(path_type=Path)
config_option = option(
    "--config", type=_PATH, metavar="FILE", help="Configuration file (YAML); default: built-in values."
)
_MANIFESTS = option(
    "--manifests",
    type=_PATH,
    metavar="DIR",
    help="Read API objects from YAML or JSON files instead of a cluster; -: from standard input.",
)
_KUBECONFIG = option(
    "--kubeconfig",
    type=_PATH,
    metavar="FILE",
    help="Kubeconfig file; default: in-cluster, then $KUBECONFIG, then ~/.kube/config.",
)
CONTEXT_KEY = "nodeagent.context"
_CONTEXT = option(
    "--context",
    metavar="NAME",
    expose_value=False,
    callback=lambda context, _, name: context.meta.update({CONTEXT_KEY: name or ""}),
    help="The kubeconfig's context; default: its current one.",
)
_NODE = option("--node", metavar="NAME", help="This node's name in the cluster; default: the host name.")
running_options = _together(_NODE, _CONTEXT, _KUBECONFIG, config_option)
"""The options that every command has, `run` included."""
kubeconfig_option = _together(_KUBECONFIG, _CONTEXT)
"""The options of commands for a cluster that need no configuration."""
cluster_options = _together(_CONTEXT, _KUBECONFIG, config_option)
"""The options of commands for a cluster, and not for one of its nodes."""
common_options = _together(_NODE, _CONTEXT, _KUBECONFIG, _MANIFESTS, config_option)
"""The options of every command that can work on manifests."""


def output_option(schema: str) -> Callable[[_Command], _Command]:
    """Return the option for the output's format; `schema` is the name of the document's, in docs/schema."""
    return option(
        "--output",
        "-o",
        type=click.Choice(["text", "json"]),
        default="text",
        help=f"Output format; json: docs/schema/{schema}.json.",
    )


adopt_option = option(
    "--adopt", is_flag=True, help="Take over from hairpin-proxy: remove its lines from the hosts file."
)
any_machine_option = option(
    "--any-machine", is_flag=True, help="Act even if none of the Node's addresses is on this machine."
)


_LOG_FORMAT = option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Log format on standard error.",
)
_LOG_LEVEL = option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="Minimum log level.",
)
log_options = _together(_LOG_LEVEL, _LOG_FORMAT)
"""The options of the log."""


def _listen_address(_context: click.Context, _: click.Parameter, text: str | None) -> ListenAddress | None:
    try:
        return ListenAddress.parse(text) if text else None
    except ValueError as error:
        raise ConfigError(f"--telemetry-listen: {error}") from error


telemetry_option = option(
    "--telemetry-listen",
    metavar="ADDRESS:PORT",
    callback=_listen_address,
    help="Listen address; overrides telemetry.listen.",
)


class _Seconds(click.FloatRange):
    name = "number of seconds"


def seconds_option(
    name: str, least: float, most: float, default: float, text: str
) -> Callable[[_Command], _Command]:
    """Return an option of so many seconds, with its help."""
    return option(name, type=_Seconds(least, most), metavar="SECONDS", default=default, help=text)


def connect(kubeconfig: Path | None) -> "Connection":
    """Return the connection that --kubeconfig and --context choose; see `connection.connect`."""
    from nodeagent.sources.kubernetes.connection import connect as connected  # noqa: PLC0415 - with a cluster

    return connected(kubeconfig, context=click.get_current_context().meta[CONTEXT_KEY])


def object_option(
    option_name: str, kind: str, default: str | None, text: str, *, optional: bool = False
) -> Callable[[_Command], _Command]:
    """Return an option that names an object, with its help; if `optional`, it may be empty: None."""

    def parsed(_context: click.Context, _: click.Parameter, given: str | None) -> ObjectRef | None:
        if optional and not given:
            return None
        namespace, slash, name = (given or "").partition("/")
        if not (slash and namespace and name) or "/" in name:
            raise ConfigError(f"{option_name} {given!r}: write it as NAMESPACE/NAME")
        return ObjectRef(kind, namespace, name)

    return option(option_name, metavar="NAMESPACE/NAME", default=default, callback=parsed, help=text)
