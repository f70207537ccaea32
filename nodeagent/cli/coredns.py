"""`nodeagent coredns`: hostnames for pods, by CoreDNS."""

from pathlib import Path

import click

from nodeagent.cli import invocation
from nodeagent.cli.logs import LogFormat, LogLevel, logging_to_stderr, say_start
from nodeagent.cli.main import Commands
from nodeagent.cli.report import coredns_lines
from nodeagent.cli.terminal import show
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.reading import read_config
from nodeagent.coredns.controller import Controller, ControllerSettings
from nodeagent.coredns.coredns_reconciler import clean_up, decide_once
from nodeagent.sources.node import default_node_name

adopt_option = invocation.option(
    "--adopt", is_flag=True, help="Take over from hairpin-proxy: replace its lines in the Corefile."
)


@click.group(cls=Commands, epilog="Example: nodeagent coredns plan")
def coredns() -> None:
    """Serve hostnames to pods through CoreDNS.

    For clusters whose pods can't be served by DNAT.
    """


@coredns.command(epilog="Example: nodeagent coredns plan --config /etc/nodeagent.yaml")
@invocation.running_options
@adopt_option
def plan(config: Path | None, kubeconfig: Path | None, node: str | None, *, adopt: bool) -> int:
    """Show what would change in CoreDNS's ConfigMaps, and why.

    Changes nothing.

    Exit code 0: nothing to do. 2: changes are pending. 1: something could not be read.
    """
    options = read_config(config)
    with invocation.connect(kubeconfig, once=True) as connection:
        outcome = decide_once(connection, node or default_node_name(), options, adopt=adopt)
    # Not wrapped: it is about lines of a Corefile, and shows them as they are.
    show(coredns_lines(outcome.desired, outcome.edits), wrap=False)
    if outcome.desired.undetermined:
        return 1
    return invocation.PENDING if outcome.edits.pending else 0


@coredns.command(epilog="Example: nodeagent coredns run --config /etc/nodeagent.yaml")
@invocation.running_options
@invocation.log_options
@adopt_option
@invocation.telemetry_option
def run(  # noqa: PLR0913 - the options
    *,
    config: Path | None,
    kubeconfig: Path | None,
    node: str | None,
    log_format: LogFormat,
    log_level: LogLevel,
    adopt: bool,
    telemetry_listen: ListenAddress | None,
) -> int:
    """Keep CoreDNS's hostnames in the desired state, until SIGTERM.

    One process per cluster. SIGHUP reloads the configuration. What nodeagent wrote stays in CoreDNS on exit;
    `nodeagent coredns cleanup` removes it.

    Exit code 0: stopped by a signal. 1: startup failed.
    """
    with logging_to_stderr(log_format, log_level):
        options = read_config(config)
        listen = telemetry_listen or options.telemetry.listen
        settings = ControllerSettings(node or default_node_name(), config, listen, adopt=adopt)
        with invocation.connect(kubeconfig) as connection:
            say_start(connection, {})
            Controller(settings, options, connection).run()
    return 0


@coredns.command(epilog="Example: nodeagent coredns cleanup")
@invocation.cluster_options
def cleanup(config: Path | None, kubeconfig: Path | None) -> int:
    """Remove nodeagent's entries from CoreDNS.

    All other bytes of the ConfigMaps stay. First stop the controller, which would write them again:
    kubectl -n nodeagent scale deployment nodeagent-coredns --replicas 0

    Exit code 0: nothing is left. 1: something could not be removed.
    """
    options = read_config(config)
    with invocation.connect(kubeconfig) as connection, invocation.removing() as report:
        if not clean_up(connection, options, report):
            show(["CoreDNS: nothing of nodeagent is left there"])
    return 0
