"""`nodeagent uninstall`: the part of an uninstallation whose order matters."""

import time
from pathlib import Path

import click

from nodeagent.cli.command_options import cluster_options, connect, object_option, seconds_option
from nodeagent.cli.terminal import show
from nodeagent.config.reading import read_config
from nodeagent.coredns.coredns_reconciler import clean_up
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.single_requests import delete_and_wait


@click.command(epilog="Example: nodeagent uninstall --timeout 1800")
@cluster_options
@object_option("--daemonset", "DaemonSet", "nodeagent/nodeagent", "The agents' DaemonSet.")
@object_option(
    "--coredns-deployment",
    "Deployment",
    "nodeagent/nodeagent-coredns",
    "The Deployment of `nodeagent coredns run`; empty if not installed.",
    optional=True,
)
@seconds_option(
    "--timeout", 1, 86400, 600.0, "Time limit for the pods to end. A relay ends with its last connection."
)
def uninstall(
    *,
    config: Path | None,
    kubeconfig: Path | None,
    daemonset: ObjectRef,
    coredns_deployment: ObjectRef | None,
    timeout: float,
) -> int:
    """Remove nodeagent from the cluster and its nodes, in order.

    First nodeagent's entries in CoreDNS, then the DaemonSet: each agent cleans up its node while its
    permissions still exist. Returns when the last pod has ended. Then delete the other objects.

    Exit code 0: done. 1: something is left; run it again.
    """
    deadline = time.monotonic() + timeout
    options = read_config(config)
    with connect(kubeconfig) as connection:
        if coredns_deployment:
            if delete_and_wait(connection, coredns_deployment, deadline - time.monotonic()):
                show([f"{coredns_deployment}: deleted"])
            for edit in clean_up(connection, options):
                show([f"ConfigMap {edit.config_map}: nodeagent's block was removed from {edit.key}"])
        what = "does not exist; on a node, `nodeagent cleanup` removes what it left"
        if delete_and_wait(connection, daemonset, deadline - time.monotonic()):
            what = "deleted; its pods have ended"
        show([f"{daemonset}: {what}"])
    return 0
