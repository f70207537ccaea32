"""`nodeagent run`: the daemon."""

import logging
from pathlib import Path
from typing import Any

import click

from nodeagent import __version__
from nodeagent.cli.invocation import (
    adopt_option,
    invocation,
    listen_address,
    log_options,
    option,
    running_options,
    telemetry_option,
)
from nodeagent.cli.logs import configure
from nodeagent.errors import ConfigError

_LOG = logging.getLogger("nodeagent")


@click.command()
@running_options
@log_options
@option(
    "--daemonset",
    metavar="NAMESPACE/NAME",
    help="The DaemonSet that runs this agent: when it is gone at the end, the node is cleaned up.",
)
@adopt_option
@telemetry_option
def run(
    *,
    log_format: Any,  # noqa: ANN401 - one of the words above
    log_level: Any,  # noqa: ANN401 - the same
    daemonset: str | None,
    telemetry_listen: str | None,
    config: Path | None,
    **options: Any,  # noqa: ANN401 - what `invocation` takes
) -> int:
    """Keep this node as it shall be: watch the API, repair drift, until SIGTERM.

    SIGHUP reads the configuration anew. What stands on the node stays when the agent ends, unless its
    DaemonSet is gone.

    Exit code 0: ended by a signal. 1: it could not begin.
    """
    configure(log_format, log_level)
    call = invocation(config=config, **options)
    # The daemon's modules and the Kubernetes client take half a second to import.
    from nodeagent.agent.daemon import Daemon, Settings  # noqa: PLC0415
    from nodeagent.sources.kubernetes.connection import connect  # noqa: PLC0415

    settings = Settings(
        call.node_name,
        config,
        call.kubeconfig,
        _own_daemonset(daemonset),
        listen_address(telemetry_listen) or call.config.telemetry.listen,
        call.adopt,
    )
    with connect(call.kubeconfig) as connection:
        _LOG.info(
            "starting",
            extra={
                "fields": {
                    "version": __version__,
                    "node": call.node_name,
                    "server": f"{connection.server[0]}:{connection.server[1]}",
                    "config": str(config) if config else "defaults",
                }
            },
        )
        Daemon(settings, call.config, connection).run()
    return 0


def _own_daemonset(text: str | None) -> Any:  # noqa: ANN401 - its type is imported late
    if not text:
        return None
    from nodeagent.sources.kubernetes.workloads import OwnDaemonSet  # noqa: PLC0415

    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise ConfigError(f"--daemonset {text!r}: write it as NAMESPACE/NAME")
    return OwnDaemonSet(namespace, name)
