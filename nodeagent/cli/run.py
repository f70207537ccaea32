"""`nodeagent run`: the daemon."""

import logging
from pathlib import Path
from typing import Any

import click

from nodeagent import __version__
from nodeagent.agent.loop import Agent, AgentSettings
from nodeagent.cli.command_options import (
    adopt_option,
    any_machine_option,
    connect,
    log_options,
    object_option,
    running_options,
    telemetry_option,
)
from nodeagent.cli.invocation import refuse_other_machine
from nodeagent.cli.logs import configure, errors_logged
from nodeagent.components.node import build_components
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.errors import SourceError, one_line
from nodeagent.model.objects import Node, ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.resources import own_node
from nodeagent.sources.node import default_node_name, source_addresses

_LOG = logging.getLogger("nodeagent")


@click.command(epilog="Example: nodeagent run --config /etc/nodeagent.yaml --log-format json")
@running_options
@log_options
@object_option(
    "--daemonset",
    "DaemonSet",
    None,
    "The DaemonSet that runs this agent; if it is gone when the agent exits, the node is cleaned up.",
    optional=True,
)
@adopt_option
@any_machine_option
@telemetry_option
def run(  # noqa: PLR0913 - the options
    *,
    log_format: Any,  # noqa: ANN401 - one of the words above
    log_level: Any,  # noqa: ANN401 - the same
    daemonset: ObjectRef | None,
    telemetry_listen: ListenAddress | None,
    config: Path | None,
    kubeconfig: Path | None,
    node: str | None,
    adopt: bool,
    any_machine: bool,
) -> int:
    """Keep this node in its desired state, until SIGTERM.

    Watches the API and repairs drift. SIGHUP reloads the configuration. On exit, the agent leaves the node as
    it is, unless its DaemonSet is gone.

    Without --daemonset, it does not start where none of the Node's addresses is on this machine.

    Exit code 0: stopped by a signal. 1: startup failed.
    """
    configure(log_format, log_level)
    with errors_logged(log_format):
        options = read_config(config)
        settings = AgentSettings(
            node or default_node_name(),
            config,
            kubeconfig,
            daemonset,
            telemetry_listen or options.telemetry.listen,
            adopt,
        )
        with connect(kubeconfig) as connection:
            server = f"{connection.server[0]}:{connection.server[1]}"
            told = {"node": settings.node_name, "server": server, "config": str(config or "defaults")}
            _LOG.info("Starting nodeagent", extra={"fields": {"version": __version__, **told}})
            if daemonset is None and not any_machine:
                _check_machine(connection, settings.node_name, options)
            Agent(settings, options, connection).run()
    return 0


def _check_machine(connection: Connection, name: str, options: Config) -> None:
    """Raise ConfigError if this machine is not the Node; without the API server, nothing."""
    try:
        found = read_list(connection, own_node(name)).items.values()
    except SourceError as error:
        fields = {"node": name, "error": one_line(error)}
        _LOG.warning("Could not check whether this machine is the Node", extra={"fields": fields})
        return
    addresses = build_components(options, adopt=False).addresses.read().addresses
    node = next((item.value for item in found if isinstance(item.value, Node)), None)
    refuse_other_machine(node, addresses, source_addresses())
