"""`nodeagent run`: the daemon."""

import logging
from pathlib import Path
from typing import Any

import click

from nodeagent import __version__
from nodeagent.agent.loop import Agent, AgentSettings
from nodeagent.cli.command_options import (
    adopt_option,
    connect,
    log_options,
    object_option,
    running_options,
    status_file_option,
    telemetry_option,
)
from nodeagent.cli.logs import configure
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.reading import read_config
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.node.identity import default_node_name

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
@status_file_option
@adopt_option
@telemetry_option
def run(  # noqa: PLR0913 - the options
    *,
    log_format: Any,  # noqa: ANN401 - one of the words above
    log_level: Any,  # noqa: ANN401 - the same
    daemonset: ObjectRef | None,
    status_file: Path | None,
    telemetry_listen: ListenAddress | None,
    config: Path | None,
    kubeconfig: Path | None,
    node: str | None,
    adopt: bool,
) -> int:
    """Keep this node in its desired state, until SIGTERM.

    Watches the API and repairs drift. SIGHUP reloads the configuration. On exit, the agent leaves the node as
    it is, unless its DaemonSet is gone.

    Exit code 0: stopped by a signal. 1: startup failed.
    """
    configure(log_format, log_level)
    options = read_config(config)
    settings = AgentSettings(
        node or default_node_name(),
        config,
        kubeconfig,
        daemonset,
        telemetry_listen or options.telemetry.listen,
        adopt,
        status_file,
    )
    with connect(kubeconfig) as connection:
        server = f"{connection.server[0]}:{connection.server[1]}"
        told = {"node": settings.node_name, "server": server, "config": str(config or "defaults")}
        _LOG.info("Starting nodeagent", extra={"fields": {"version": __version__, **told}})
        Agent(settings, options, connection).run()
    return 0
