"""`nodeagent coredns`: serve hostnames to pods through CoreDNS."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from nodeagent import __version__
from nodeagent.cli.command_options import (
    PENDING,
    cluster_options,
    connect,
    log_options,
    object_option,
    option,
    running_options,
    seconds_option,
    telemetry_option,
)
from nodeagent.cli.logs import configure
from nodeagent.cli.report import coredns_lines
from nodeagent.cli.terminal import show
from nodeagent.config.option_types import ListenAddress
from nodeagent.config.reading import read_config
from nodeagent.coredns.controller import Controller, ControllerSettings
from nodeagent.coredns.coredns_reconciler import clean_up, decide_once, keeping_others_out, restore
from nodeagent.coredns.lease import LeaseTiming
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.node.identity import default_node_name

_LOG = logging.getLogger("nodeagent")


_adopt_option = option(
    "--adopt", is_flag=True, help="Take over from hairpin-proxy: replace its lines in the Corefile."
)
_lease_option = object_option(
    "--lease", "Lease", "nodeagent/nodeagent-coredns", "Lease for leader election; only its holder writes."
)


@click.group(epilog="Example: nodeagent coredns plan")
def coredns() -> None:
    """Serve hostnames to pods through CoreDNS.

    For clusters whose pods can't be served by DNAT.
    """


@coredns.command(epilog="Example: nodeagent coredns plan --config /etc/nodeagent.yaml")
@running_options
@_adopt_option
def plan(config: Path | None, kubeconfig: Path | None, node: str | None, *, adopt: bool) -> int:
    """Show what would change in CoreDNS's ConfigMaps, and why.

    Changes nothing.

    Exit code 0: nothing to do. 2: changes are pending. 1: something could not be read.
    """
    options = read_config(config)
    with connect(kubeconfig) as connection:
        found = decide_once(connection, node or default_node_name(), options, adopt=adopt)
    diffs: dict[str, str] = {}
    for edit in found.edits.pending:
        diffs[edit.config_map] = diffs.get(edit.config_map, "") + edit.diff()
    decided = replace(found.desired, names=found.edits.decisions)
    show(coredns_lines(decided, found.edits.remarks, diffs))
    if found.desired.unreadable:
        return 1
    return PENDING if diffs else 0


@coredns.command(epilog="Example: nodeagent coredns run --lease nodeagent/nodeagent-coredns")
@running_options
@log_options
@_lease_option
@seconds_option(
    "--lease-duration", 3, 300, 15.0, "Time after the leader's death until another process takes over."
)
@option(
    "--identity",
    metavar="NAME",
    default=lambda: os.uname().nodename,
    show_default="the host name",
    help="This process's name in leader election; in a pod, the pod's name.",
)
@_adopt_option
@telemetry_option
def run(  # noqa: PLR0913 - the options
    *,
    config: Path | None,
    kubeconfig: Path | None,
    node: str | None,
    log_format: Any,  # noqa: ANN401 - one of the option's words
    log_level: Any,  # noqa: ANN401 - the same
    lease: ObjectRef,
    lease_duration: float,
    identity: str,
    adopt: bool,
    telemetry_listen: ListenAddress | None,
) -> int:
    """Keep CoreDNS's hostnames in the desired state, until SIGTERM.

    Writes only while this process holds the lease. What nodeagent wrote stays in CoreDNS on exit;
    `nodeagent coredns cleanup` removes it.

    Exit code 0: stopped by a signal. 1: startup failed.
    """
    configure(log_format, log_level)
    options = read_config(config)
    settings = ControllerSettings(
        identity,
        node or default_node_name(),
        lease,
        config,
        telemetry_listen or options.telemetry.listen,
        adopt=adopt,
        timing=LeaseTiming.of(lease_duration),
    )
    with connect(kubeconfig) as connection:
        host, port = connection.server
        fields = {"version": __version__, "identity": identity, "server": f"{host}:{port}"}
        _LOG.info("Starting nodeagent", extra={"fields": fields})
        Controller(settings, options, connection).driver.run()
    return 0


@coredns.command(epilog="Example: nodeagent coredns cleanup")
@cluster_options
@_lease_option
@option(
    "--previous",
    is_flag=True,
    help="Restore the Corefile from before nodeagent's first edit, discarding all later edits.",
)
def cleanup(config: Path | None, kubeconfig: Path | None, lease: ObjectRef, *, previous: bool) -> int:
    """Remove nodeagent's entries from CoreDNS, and the Lease.

    All other bytes of the ConfigMaps stay.

    Exit code 0: nothing is left. 1: something could not be removed, or a controller still runs.
    """
    options = read_config(config)
    with (
        connect(kubeconfig) as connection,
        keeping_others_out(connection, lease, f"cleanup on {os.uname().nodename}"),
    ):
        if previous:
            before = "the Corefile was restored to the one from before nodeagent's first edit"
            done = [f"ConfigMap {path}: {before}" for path in restore(connection, options)]
        else:
            done = [
                f"ConfigMap {edit.config_map}: nodeagent's block was removed from {edit.key}"
                for edit in clean_up(connection, options)
            ]
    show(done or ["CoreDNS: nothing of nodeagent is left there"])
    return 0
