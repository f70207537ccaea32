"""`nodeagent run`: the daemon."""

import logging
from pathlib import Path

import click

from nodeagent.agent.loop import Agent, AgentSettings
from nodeagent.cli import invocation
from nodeagent.cli.logs import LogFormat, LogLevel, logging_to_stderr, say_start
from nodeagent.components.node import build_components
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.errors import SourceError, one_line
from nodeagent.model.objects import Node, ObjectRef
from nodeagent.observe.transition_log import say
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.resources import own_node
from nodeagent.sources.node import default_node_name, source_addresses


@click.command(epilog="Example: nodeagent run --config /etc/nodeagent.yaml --log-format json")
@invocation.running_options
@invocation.log_options
@invocation.object_option(
    "--daemonset",
    "DaemonSet",
    None,
    "The DaemonSet that runs this agent; if it is gone when the agent exits, the node is cleaned up.",
    optional=True,
)
@invocation.adopt_option
@invocation.any_machine_option
@invocation.telemetry_option
def run(  # noqa: PLR0913 - the options
    *,
    log_format: LogFormat,
    log_level: LogLevel,
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
    with logging_to_stderr(log_format, log_level):
        options = read_config(config)
        listen = telemetry_listen or options.telemetry.listen
        settings = AgentSettings(node or default_node_name(), config, kubeconfig, daemonset, listen, adopt)
        with invocation.connect(kubeconfig) as connection:
            say_start(connection, {"node": settings.node_name, "config": str(config or "defaults")})
            if daemonset is None and not any_machine:
                _check_machine(connection, settings.node_name, options)
            Agent(settings, options, connection).run()
    return 0


def _check_machine(connection: Connection, name: str, options: Config) -> None:
    """Raise ConfigError if this machine is not the Node; without the API server, nothing."""
    try:
        objects = read_list(connection, own_node(name)).items.values()
    except SourceError as error:
        message = "Could not check whether this machine is the Node"
        say(logging.WARNING, message, node=name, error=one_line(error))
        return
    addresses = build_components(options, adopt=False).addresses.read().addresses
    node = next((value for value in objects if isinstance(value, Node)), None)
    invocation.refuse_other_machine(node, {*source_addresses(), *(address.address for address in addresses)})
