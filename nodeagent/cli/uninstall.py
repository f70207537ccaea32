"""`nodeagent uninstall`: the part of an uninstallation whose order matters."""

import os
import time
from dataclasses import replace
from pathlib import Path

import click

from nodeagent.cli.command_options import cluster_options, connect, object_of, option
from nodeagent.cli.terminal import show
from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.coredns.coredns_reconciler import clean_up, keeping_others_out
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.workloads import delete_and_wait


@click.command(epilog="Example: nodeagent uninstall --timeout 1800")
@cluster_options
@option(
    "--daemonset",
    metavar="NAMESPACE/NAME",
    default="nodeagent/nodeagent",
    show_default=True,
    help="The agents' DaemonSet.",
)
@option(
    "--coredns-deployment",
    metavar="NAMESPACE/NAME",
    default="nodeagent/nodeagent-coredns",
    show_default=True,
    help="The Deployment of `nodeagent coredns run`, and its Lease; empty if not installed.",
)
@option(
    "--timeout",
    type=click.FloatRange(1, 86400),
    metavar="SECONDS",
    default=600.0,
    show_default=True,
    help="Time limit for the pods to end. A relay ends with its last connection.",
)
def uninstall(
    config: Path | None, kubeconfig: Path | None, daemonset: str, coredns_deployment: str, timeout: float
) -> int:
    """Remove nodeagent from the cluster and its nodes, in order.

    First nodeagent's entries in CoreDNS, then the DaemonSet: each agent cleans up its node while its
    permissions still exist. Returns when the last pod has ended. Then delete the other objects.

    Exit code 0: done. 1: something is left; run it again.
    """
    deadline = time.monotonic() + timeout
    options = read_config(config)
    agents = object_of("DaemonSet", "--daemonset", daemonset)
    with connect(kubeconfig) as connection:
        if coredns_deployment:
            controller = object_of("Deployment", "--coredns-deployment", coredns_deployment)
            if delete_and_wait(connection, controller, deadline - time.monotonic()):
                show([f"{controller}: deleted"])
            _clean_coredns(connection, replace(controller, kind="Lease"), options)
        if delete_and_wait(connection, agents, deadline - time.monotonic()):
            show([f"{agents}: deleted; its agents have cleaned up their nodes"])
        else:
            show([f"{agents}: does not exist; on a node, `nodeagent cleanup` removes what it left"])
    return 0


def _clean_coredns(connection: Connection, lease: ObjectRef, options: Config) -> None:
    with keeping_others_out(connection, lease, f"uninstall on {os.uname().nodename}") as exists:
        if not exists:
            return  # no controller ever wrote anything, or this has run before
        for edit in clean_up(connection, options):
            show([f"ConfigMap {edit.config_map}: nodeagent's block was removed from {edit.key}"])
    show([f"{lease}: deleted"])
