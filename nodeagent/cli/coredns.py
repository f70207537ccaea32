"""`nodeagent coredns`: names for pods, by CoreDNS."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodeagent import __version__
from nodeagent.cli.invocation import (
    cluster_options,
    listen_address,
    log_options,
    option,
    running_options,
    telemetry_option,
)
from nodeagent.cli.logs import configure
from nodeagent.cli.on_node import PENDING
from nodeagent.cli.terminal import show, show_text
from nodeagent.cli.text import coredns_text
from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.errors import ConfigError
from nodeagent.sources.node.identity import default_node_name

if TYPE_CHECKING:
    from nodeagent.coredns.lease import LeaseName
    from nodeagent.sources.kubernetes.connection import Connection

_LOG = logging.getLogger("nodeagent")


_adopt_option = option(
    "--adopt", is_flag=True, help="Take over from hairpin-proxy: replace its lines of the Corefile."
)
_lease_option = option(
    "--lease",
    metavar="NAMESPACE/NAME",
    default="nodeagent/nodeagent-coredns",
    show_default=True,
    help="The Lease whose holder alone writes.",
)


@click.group()
def coredns() -> None:
    """Names for pods, by CoreDNS: for clusters whose pods can't be served by DNAT."""


@coredns.command()
@running_options
@_adopt_option
def plan(config: Path | None, kubeconfig: Path | None, node: str | None, *, adopt: bool) -> int:
    """Show what would change of CoreDNS's ConfigMaps, and why; change nothing.

    Exit code 0: nothing to do. 2: changes are pending. 1: something could not be read.
    """
    # The Kubernetes client takes half a second to import, here as below.
    from nodeagent.coredns.once import look  # noqa: PLC0415

    options = _config(config)
    with _connected(kubeconfig) as connection:
        found = look(connection, node or default_node_name(), options, adopt=adopt)
    diffs: dict[str, str] = {}
    for edit in found.edits.pending:
        diffs[edit.config_map] = diffs.get(edit.config_map, "") + edit.diff()
    decided = replace(found.desired, names=found.edits.decisions)
    show_text(coredns_text(decided, found.edits.remarks, diffs))
    return PENDING if diffs else 0


@coredns.command()
@running_options
@log_options
@_lease_option
@option(
    "--lease-duration",
    type=click.FloatRange(3, 300),
    metavar="SECONDS",
    default=15.0,
    show_default=True,
    help="So long after a holder's death another takes over.",
)
@option(
    "--identity",
    metavar="NAME",
    default=lambda: os.uname().nodename,
    show_default="the host name",
    help="This process's name among those that strive for the lease: in a pod, the pod's.",
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
    lease: str,
    lease_duration: float,
    identity: str,
    adopt: bool,
    telemetry_listen: str | None,
) -> int:
    """Keep CoreDNS's names as they shall be, while this process holds the lease, until SIGTERM.

    What CoreDNS was given stays when it ends; `nodeagent coredns cleanup` takes it away.

    Exit code 0: ended by a signal. 1: it could not begin.
    """
    configure(log_format, log_level)
    options = _config(config)
    from nodeagent.coredns.controller import Controller, ControllerSettings  # noqa: PLC0415
    from nodeagent.coredns.lease import LeaseTiming  # noqa: PLC0415

    listen = listen_address(telemetry_listen) or options.telemetry.listen
    settings = ControllerSettings(
        identity,
        node or default_node_name(),
        _lease(lease),
        config,
        listen,
        adopt=adopt,
        timing=LeaseTiming.of(lease_duration),
    )
    with _connected(kubeconfig) as connection:
        host, port = connection.server
        fields = {"version": __version__, "identity": identity, "server": f"{host}:{port}"}
        _LOG.info("starting", extra={"fields": fields})
        Controller(settings, options, connection).run()
    return 0


@coredns.command()
@cluster_options
@_lease_option
@option(
    "--previous",
    is_flag=True,
    help="Put back the Corefile as it was before nodeagent's first edit, whatever was edited since.",
)
def cleanup(config: Path | None, kubeconfig: Path | None, lease: str, *, previous: bool) -> int:
    """Take nodeagent's names out of CoreDNS's ConfigMaps; every other byte of them stays.

    Exit code 0: nothing is left. 1: something could not be removed, or a controller still runs.
    """
    from nodeagent.coredns.once import clean_up, keeping_others_out, restore  # noqa: PLC0415

    options = _config(config)
    with _connected(kubeconfig) as connection:
        holder = keeping_others_out(connection, _lease(lease), f"cleanup on {os.uname().nodename}")
        try:
            if previous:
                for path in restore(connection, options):
                    show([f"ConfigMap {path}: the Corefile is the one from before nodeagent's first edit"])
                return 0
            edits = clean_up(connection, options)
        finally:
            if holder is not None:
                holder.release()
    for edit in edits:
        show([f"ConfigMap {edit.config_map}: nodeagent's block was taken out of {edit.key}"])
    if not edits:
        show(["CoreDNS: nothing of nodeagent stands there"])
    return 0


def _config(file: Path | None) -> Config:
    return read_config(file) if file else Config()


@contextmanager
def _connected(kubeconfig: Path | None) -> "Iterator[Connection]":
    from nodeagent.sources.kubernetes.connection import connect  # noqa: PLC0415

    with connect(kubeconfig) as connection:
        yield connection


def _lease(text: str) -> "LeaseName":
    from nodeagent.coredns.lease import LeaseName  # noqa: PLC0415

    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise ConfigError(f"--lease {text!r}: write it as NAMESPACE/NAME")
    return LeaseName(namespace, name)
