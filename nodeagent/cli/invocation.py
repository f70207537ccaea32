"""The options that every command shares, and what a command starts from: configuration, node, snapshot."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from nodeagent.agent.appliers import Appliers, build_appliers
from nodeagent.agent.dns.upstream import ask_once
from nodeagent.agent.exclusion import exclusive
from nodeagent.agent.facts import gather_facts, read_circumstances
from nodeagent.config.options import Config, ListenAddress
from nodeagent.config.reading import read_config
from nodeagent.errors import ConfigError
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Snapshot
from nodeagent.model.running import ClusterAnswers
from nodeagent.plan.planner import plan
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.node.identity import default_node_name

_LOCK_SECONDS = 10.0

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class View:
    """One moment: the cluster, this node, and what shall stand on it."""

    snapshot: Snapshot
    facts: Facts
    desired: Desired


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of a command: its configuration and where its objects come from."""

    config: Config
    node_name: str
    manifests: Path | None
    kubeconfig: Path | None
    adopt: bool

    def appliers(self) -> Appliers:
        """The appliers for the configuration; touches nothing."""
        return build_appliers(self.config, adopt=self.adopt)

    def desired(self, appliers: Appliers) -> Desired:
        """What shall stand on this node now; see `view`."""
        return self.view(appliers).desired

    def view(self, appliers: Appliers) -> View:
        """The cluster, this node, and what shall stand on it now.

        Names that need proof are asked for, ten seconds at most. Raises SourceError when the objects can't be
        had.
        """
        snapshot, servers = self._observe()
        kubeconfigs = [self.kubeconfig] if self.kubeconfig else []
        around = read_circumstances(self.config, snapshot, appliers, kubeconfigs, servers)
        facts = gather_facts(self.node_name, around, self.config, appliers, adopt=self.adopt)
        desired = plan(snapshot, facts, self.config)
        if desired.to_prove:
            facts = replace(facts, dns=ask_once(desired.to_prove, self.config.hosts))
            desired = plan(snapshot, facts, self.config)
        return View(snapshot, facts, desired)

    def snapshot(self) -> Snapshot:
        """The cluster's objects. Raises SourceError when they are not available."""
        return self._observe()[0]

    def ask_cluster(self) -> ClusterAnswers:
        """What the API server says besides its objects; manifests say nothing of that. Raises nothing."""
        if self.manifests is not None:
            why = "manifests do not tell"
            return ClusterAnswers(why=(("version", why), ("pods", why), ("dns", why), ("policies", why)))
        from nodeagent.sources.kubernetes.connection import connect  # noqa: PLC0415 - as below
        from nodeagent.sources.kubernetes.questions import ask_cluster  # noqa: PLC0415

        with connect(self.kubeconfig) as connection:
            return ask_cluster(connection, self.node_name)

    def exclusively(self) -> AbstractContextManager[None]:
        """Holds the node's lock: one writer at a time. Raises ApplyError when another keeps it."""
        return exclusive(Path(self.config.relay.run_dir), _LOCK_SECONDS)

    def _observe(self) -> tuple[Snapshot, list[tuple[str, int]]]:
        """The objects, and the API servers (host, port) that were asked for them."""
        service = self.config.relay.existing_service
        config_maps = self.config.load_balancers.config_map_names
        if self.manifests is not None:
            return read_manifests(self.manifests, self.node_name, service, config_maps), []
        # The Kubernetes client takes half a second to import, and manifests need none.
        from nodeagent.sources.kubernetes.cluster import read_cluster  # noqa: PLC0415
        from nodeagent.sources.kubernetes.connection import connect  # noqa: PLC0415

        with connect(self.kubeconfig) as connection:
            found = read_cluster(connection, self.node_name, service, config_maps)
            return found, [connection.server]


def option(name: str, *short: str, **attributes: Any) -> Callable[[_Command], _Command]:  # noqa: ANN401 - click's
    """An option that may also be given as an environment variable: NODEAGENT_ and its name."""
    variable = f"NODEAGENT_{name.lstrip('-').upper().replace('-', '_')}"
    return click.option(name, *short, envvar=variable, show_envvar=True, **attributes)


def running_options(command: _Command) -> _Command:
    """Adds the options that every command has, `run` included."""
    for add in (_NODE, _KUBECONFIG, _CONFIG):
        command = add(command)
    return command


def cluster_options(command: _Command) -> _Command:
    """Adds the options of commands that are about a cluster, and about no node of it."""
    for add in (_KUBECONFIG, _CONFIG):
        command = add(command)
    return command


def common_options(command: _Command) -> _Command:
    """Adds the options that every command has which may work on manifests."""
    for add in (_NODE, _KUBECONFIG, _MANIFESTS, _CONFIG):
        command = add(command)
    return command


def invocation(
    *,
    config: Path | None,
    kubeconfig: Path | None,
    node: str | None,
    manifests: Path | None = None,
    adopt: bool = False,
) -> Invocation:
    """Reads the configuration and settles the node's name. Raises ConfigError."""
    return Invocation(
        config=read_config(config) if config else Config(),
        node_name=node or default_node_name(),
        manifests=manifests,
        kubeconfig=kubeconfig,
        adopt=adopt,
    )


_PATH = click.Path(path_type=Path)
_CONFIG = option(
    "--config", type=_PATH, metavar="FILE", help="Configuration file (YAML); without it, defaults."
)
_MANIFESTS = option(
    "--manifests",
    type=_PATH,
    metavar="DIR",
    help="Read API objects from YAML or JSON files, not from a cluster.",
)
_KUBECONFIG = option(
    "--kubeconfig",
    type=_PATH,
    metavar="FILE",
    help="How to reach the API server; default: in-cluster, then ~/.kube/config.",
)
_NODE = option("--node", metavar="NAME", help="This node's name in the cluster; default: the host name.")
output_option = option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: docs/schema/report-v1.json.",
)
adopt_option = option(
    "--adopt", is_flag=True, help="Take over from hairpin-proxy: remove its lines from the hosts file."
)


# The options of commands that run on: how they log, and where they show their pages.


_LOG_FORMAT = option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the log is written to standard error.",
)
_LOG_LEVEL = option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="From which level on.",
)
telemetry_option = option(
    "--telemetry-listen",
    metavar="ADDRESS:PORT",
    help="This process's own, where telemetry.listen of the configuration would be the same for all.",
)


def log_options(command: _Command) -> _Command:
    """Adds the options of the log."""
    for add in (_LOG_LEVEL, _LOG_FORMAT):
        command = add(command)
    return command


def listen_address(text: str | None) -> ListenAddress | None:
    """What `--telemetry-listen` says. Raises ConfigError."""
    try:
        return ListenAddress.parse(text) if text else None
    except ValueError as error:
        raise ConfigError(f"--telemetry-listen: {error}") from error
