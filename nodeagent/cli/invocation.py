"""The options that every command shares, and what a command starts from: configuration, node, snapshot."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from nodeagent.agent.appliers import Appliers, build_appliers
from nodeagent.agent.exclusion import exclusive
from nodeagent.agent.facts import gather_facts
from nodeagent.config.options import Config
from nodeagent.config.reading import read_config
from nodeagent.errors import SourceError
from nodeagent.model.desired import Desired
from nodeagent.model.objects import Snapshot
from nodeagent.plan.planner import plan
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.node.identity import default_node_name

_LOCK_SECONDS = 10.0

_Command = TypeVar("_Command", bound=Callable[..., Any])


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
        """What shall stand on this node now. Raises SourceError when the objects can't be had."""
        kubeconfigs = [self.kubeconfig] if self.kubeconfig else []
        facts = gather_facts(self.node_name, self.config, appliers, kubeconfigs, adopt=self.adopt)
        return plan(self._snapshot(), facts, self.config)

    def exclusively(self) -> AbstractContextManager[None]:
        """Holds the node's lock: one writer at a time. Raises ApplyError when another keeps it."""
        return exclusive(Path(self.config.relay.run_dir), _LOCK_SECONDS)

    def _snapshot(self) -> Snapshot:
        if self.manifests is None:
            raise SourceError("where are the objects? give --manifests DIR; nothing was changed")
        return read_manifests(self.manifests, self.node_name)


def common_options(command: _Command) -> _Command:
    """Adds the options that every command shares; each may also be given as NODEAGENT_*."""
    for option in reversed(_COMMON):
        command = option(command)
    return command


def invocation(
    *,
    config: Path | None,
    manifests: Path | None,
    kubeconfig: Path | None,
    node: str | None,
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


def _option(name: str, *short: str, **attributes: Any) -> Callable[[_Command], _Command]:  # noqa: ANN401 - click's own
    variable = f"NODEAGENT_{name.lstrip('-').upper().replace('-', '_')}"
    return click.option(name, *short, envvar=variable, show_envvar=True, **attributes)


_PATH = click.Path(path_type=Path)
_COMMON = (
    _option("--config", type=_PATH, metavar="FILE", help="Configuration file (YAML); without it, defaults."),
    _option("--manifests", type=_PATH, metavar="DIR", help="Read API objects from YAML or JSON files."),
    _option("--kubeconfig", type=_PATH, metavar="FILE", help="How to reach the API server."),
    _option("--node", metavar="NAME", help="This node's name in the cluster; default: the host name."),
)
output_option = _option(
    "--output",
    "-o",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: docs/schema/report-v1.json.",
)
adopt_option = _option(
    "--adopt", is_flag=True, help="Take over from hairpin-proxy: remove its lines from the hosts file."
)
