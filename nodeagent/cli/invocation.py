"""The options that commands share, and what they mean: the configuration, this node, the cluster.

The Kubernetes client is imported only when a cluster is read: with manifests, a command starts without it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import reduce
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource
from msgspec import Struct

from nodeagent.cli.terminal import show, show_error
from nodeagent.components.node import ActualState, build_components
from nodeagent.config.option_types import DnsName, TelemetryAddress
from nodeagent.config.options import Config
from nodeagent.config.reading import parse_config, read_config
from nodeagent.errors import ConfigError, NodeagentError, SourceError, one_line, quoted
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts
from nodeagent.model.objects import Node, ObjectRef, Snapshot
from nodeagent.observe.status import read_rejected
from nodeagent.plan.planner import plan
from nodeagent.sources.api_servers import find_api_servers
from nodeagent.sources.kubernetes.single_requests import ClusterAnswers, ask_cluster, read_cluster
from nodeagent.sources.manifests import read_manifests, read_standard_input
from nodeagent.sources.node import default_node_name, read_facts, with_hosts_file
from nodeagent.sources.upstream_dns import ask_once

if TYPE_CHECKING:
    from nodeagent.sources.kubernetes.connection import Connection

PENDING = 2
"""The exit code of a plan with changes to make, or of a status that is not in sync."""

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Option(click.Option):
    """An option whose errors name what was typed: itself, or its variable. No other option is its value."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:  # noqa: ANN401 - click's
        names = {name for parameter in ctx.command.get_params(ctx) for name in parameter.opts}
        for word in value if isinstance(value, list | tuple) else [value]:
            if isinstance(word, str) and (flag := word.partition("=")[0]) in names:
                problem = f"{self.get_error_hint(ctx)} needs a value; it is followed by '{flag}'."
                raise click.BadOptionUsage(self.opts[0], problem, ctx)
        return super().process_value(ctx, value)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        source = ctx.get_parameter_source(self.name or "") if ctx else None
        if source is ParameterSource.ENVIRONMENT and isinstance(self.envvar, str):
            return f"'{self.envvar}'"
        return " / ".join(f"'{name}'" for name in self.opts)


def option(name: str, *short: str, **attributes: Any) -> _Decorator:  # noqa: ANN401 - click's
    """Return an option that is also an environment variable: NODEAGENT_ and its name."""
    variable = f"NODEAGENT_{name.lstrip('-').upper().replace('-', '_')}"
    attributes.setdefault("show_default", bool(attributes.get("default")))
    return click.option(name, *short, cls=_Option, envvar=variable, show_envvar=True, **attributes)


def _together(*options: _Decorator) -> _Decorator:
    return lambda command: reduce(lambda decorated, add: add(decorated), options, command)


_FORMATS = click.Choice(["text", "json"])
_PATH = click.Path(path_type=Path, readable=False)
config_option = option(
    "--config", type=_PATH, metavar="FILE", help="Configuration file (YAML); default: built-in values."
)
_MANIFESTS = option(
    "--manifests",
    type=_PATH,
    metavar="DIR",
    help="Read API objects from YAML or JSON files instead of a cluster; -: from standard input.",
)
_KUBECONFIG = option(
    "--kubeconfig",
    type=_PATH,
    metavar="FILE",
    help="Kubeconfig file; default: in-cluster, then $KUBECONFIG, then ~/.kube/config.",
)
CONTEXT_KEY = "nodeagent.context"
_CONTEXT = option(
    "--context",
    metavar="NAME",
    expose_value=False,
    callback=lambda context, _, name: context.meta.update({CONTEXT_KEY: name or ""}),
    help="The kubeconfig's context; default: its current one.",
)
_NODE = option("--node", metavar="NAME", help="This node's name in the cluster; default: the host name.")
kubeconfig_option = _together(_KUBECONFIG, _CONTEXT)
# For a cluster; for one of its nodes; with manifests in place of the cluster.
cluster_options = _together(_CONTEXT, _KUBECONFIG, config_option)
running_options = _together(_NODE, cluster_options)
common_options = _together(_NODE, _CONTEXT, _KUBECONFIG, _MANIFESTS, config_option)


def output_option(schema: str) -> _Decorator:
    """Return the option for the output's format; `schema` is the name of the document's, in docs/schema."""
    description = f"Output format; json: docs/schema/{schema}.json."
    return option("--output", "-o", type=_FORMATS, default="text", help=description)


adopt_option = option(
    "--adopt", is_flag=True, help="Take over from hairpin-proxy: remove its lines from the hosts file."
)
any_machine_option = option(
    "--any-machine", is_flag=True, help="Act even if none of the Node's addresses is on this machine."
)
_LEVELS = click.Choice(["debug", "info", "warning", "error"])
log_options = _together(
    option("--log-level", type=_LEVELS, default="info", help="Minimum log level."),
    option("--log-format", type=_FORMATS, default="text", help="Log format on standard error."),
)


def parsed(kind: type[DnsName] | type[TelemetryAddress]) -> Callable[..., str | None]:
    """Return what an option's text is checked by: its type."""

    def parse(_context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
        try:
            return None if text is None else kind.parse(text)
        except ValueError as error:
            raise ConfigError(f"{parameter.opts[0]}: {error}") from error

    return parse


telemetry_option = option(
    "--telemetry-listen",
    metavar="ADDRESS:PORT",
    callback=parsed(TelemetryAddress),
    help="Listen address; overrides telemetry.listen.",
)


class _Seconds(click.FloatRange):
    def convert(self, value: Any, param: Any, ctx: Any) -> float:  # noqa: ANN401 - click's
        seconds: float = super().convert(value, param, ctx)
        return self.fail("", param, ctx) if isnan(seconds) else seconds

    def fail(self, _: str, param: Any = None, ctx: Any = None) -> NoReturn:  # noqa: ANN401 - click's
        super().fail(f"must be a number of seconds from {self.min:g} to {self.max:g}.", param, ctx)


def timeout_option(most: float, default: float, text: str) -> _Decorator:
    """Return the option for a time limit of 1 to `most` seconds."""
    return option("--timeout", type=_Seconds(1, most), metavar="SECONDS", default=default, help=text)


def connect(kubeconfig: Path | None, *, once: bool = False) -> "Connection":
    """Return the connection that --kubeconfig and --context choose; see `connection.connect`."""
    from nodeagent.sources.kubernetes.connection import connect as connected  # noqa: PLC0415 - with a cluster

    return connected(kubeconfig, context=click.get_current_context().meta[CONTEXT_KEY], once=once)


@contextmanager
def removing() -> Iterator[Callable[[str], None]]:
    """Provide what shows each removal; an error within says whether there were any, and in which cluster."""
    removals: list[str] = []

    def report(removal: str) -> None:
        removals.append(removal)
        show([removal])

    try:
        yield report
    except SourceError as error:
        outcome = "the rest is left: run it again" if removals else "nothing was removed"
        context = click.get_current_context().meta[CONTEXT_KEY] or "the current one"
        raise NodeagentError(f"{error}; {outcome} (kubeconfig's context: {context})") from error


def object_option(
    option_name: str, kind: str, default: str | None, text: str, *, optional: bool = False
) -> _Decorator:
    """Return an option that names an object; if `optional`, it may be empty: None."""

    def reference(_context: click.Context, _: click.Parameter, path: str | None) -> ObjectRef | None:
        if optional and not path:
            return None
        namespace, _slash, name = (path or "").partition("/")
        try:
            # "." as a name would be the path of all of them.
            return ObjectRef(kind, DnsName.parse(namespace), DnsName.parse(name))
        except ValueError as error:
            raise ConfigError(f"{option_name} {path!r}: write it as NAMESPACE/NAME") from error

    return option(option_name, metavar="NAMESPACE/NAME", default=default, callback=reference, help=text)


_SHOWN_NAMES = 5
_REJECTED = "the agent rejected that configuration; this report is by the active one: correct it"
_STANDARD_INPUT = Path("-")


class View(Struct, frozen=True):
    """One moment: the cluster, this node, its desired state, and the actual one, read when it is needed."""

    snapshot: Snapshot
    facts: Facts
    desired: Desired
    actual: ActualState

    @property
    def here(self) -> set[IPAddress]:
        """This machine's addresses."""
        return {*self.facts.source_addresses, *(address.address for address in self.facts.addresses)}

    @property
    def elsewhere(self) -> str:
        """Why this machine may not be the node of that name; empty if it has one of the Node's addresses."""
        node = self.snapshot.node
        if node is not None:
            return not_this_machine(node, self.here)
        if self.snapshot.nodes:
            return f"this machine ({self.facts.node_name}) is not a node of this cluster"
        return "no Node was read, so whether this machine is one is unknown"


def not_this_machine(node: Node, here: set[IPAddress]) -> str:
    """Return why this machine is not the Node, by the addresses that are on it; empty if it is."""
    if here.intersection(node.addresses):
        return ""
    theirs = ", ".join(map(str, node.addresses)) or "none"
    return f"this machine is not that node: none of Node {node.name}'s addresses ({theirs}) is on it"


def refuse_other_machine(node: Node | None, here: set[IPAddress]) -> None:
    """Raise ConfigError if this machine is known not to be the Node."""
    if node is not None and node.addresses and (why := not_this_machine(node, here)):
        raise ConfigError(
            f"{why}; nothing was changed. Pass the name of this machine's Node (--node NAME), or "
            "--any-machine if this is the node all the same"
        )


class Invocation(Struct, frozen=True):
    """One call of a command: its configuration and the source of its objects."""

    config: Config
    node_name: str
    node_given: bool
    manifests: Path | bytes | None
    kubeconfig: Path | None
    adopt: bool
    rejected: bool
    """Whether the configuration is the running agent's, which rejected the file."""

    def view(self, *, of_a_node: bool = True, whole: bool = False) -> View:
        """Return the cluster, this node, and its states; hostnames are looked up, for ten seconds at most.

        `whole`: with hostnames even if none is wanted, and with the addresses of all nodes, for the doctor.
        Raises SourceError, or ConfigError if no Node has the name, and it was given or has to be one
        (`of_a_node`): what is decided for it would be wrong for this machine.
        """
        snapshot, servers = self.observe(whole=whole)
        unread = any(entry.where.endswith(f"Node {self.node_name}") for entry in snapshot.unreadable)
        if (of_a_node or self.node_given) and snapshot.node is None and snapshot.nodes and not unread:
            self._reject_other_nodes([node.name for node in snapshot.nodes])
        actual = ActualState(build_components(self.config, adopt=self.adopt))
        api = find_api_servers([self.kubeconfig] if self.kubeconfig else [], servers=servers)
        facts = read_facts(self.node_name, self.config, snapshot, actual, api)
        facts = with_hosts_file(facts, self.config, actual, adopt=self.adopt)
        desired = plan(snapshot, facts, self.config)
        if desired.questions:
            facts = replace(facts, dns=ask_once(desired.questions, self.config.hosts))
            desired = plan(snapshot, facts, self.config)
        return View(snapshot, facts, desired, actual)

    def ask_cluster(self) -> ClusterAnswers:
        """Return the API server's other data; manifests have none of that."""
        if self.manifests is not None:
            why = "with --manifests, no cluster is queried"
            return ClusterAnswers(why=dict.fromkeys(("dns", "policy_api"), why))
        with connect(self.kubeconfig, once=True) as connection:
            return ask_cluster(connection)

    def observe(self, *, whole: bool = False) -> tuple[Snapshot, list[tuple[str, int]]]:
        """Return the objects, and the API servers (host, port) that provided them. Raises SourceError."""
        service = self.config.relay.existing_service
        if self.manifests is not None:
            return read_manifests(self.manifests, self.node_name, service), []
        with connect(self.kubeconfig, once=True) as connection:
            hostnames = whole or self.config.hosts.enabled
            snapshot = read_cluster(connection, self.node_name, service, hostnames=hostnames, nodes=whole)
            return snapshot, [connection.server]

    def _reject_other_nodes(self, names: Sequence[str]) -> NoReturn:
        shown = get_close_matches(self.node_name, names, _SHOWN_NAMES, 0)
        more = len(names) - len(shown)
        raise ConfigError(
            f"no Node is called {quoted(self.node_name)}; nothing was changed. The Nodes are "
            f"{', '.join(map(one_line, shown))}{f' and {more} more' if more else ''}. "
            "Pass the name of this machine's Node: --node NAME"
        )


def read(  # noqa: PLR0913 - the options
    *,
    config: Path | None,
    kubeconfig: Path | None,
    node: str | None,
    manifests: Path | None = None,
    adopt: bool = False,
    by_active: bool = False,
) -> Invocation:
    """Read the configuration and determine the node's name. Raises ConfigError or UsageError.

    With `by_active`, a configuration that the agent here rejected is replaced by the one that it keeps.
    """
    if manifests is not None and kubeconfig is not None:
        raise click.UsageError("--manifests and --kubeconfig exclude each other: leave one of them out")
    rejected = read_rejected(config) if by_active and config else None
    if rejected:
        show_error(f"nodeagent: {rejected.reason}\n{_REJECTED}")
    return Invocation(
        config=parse_config(rejected.active, "active") if rejected else read_config(config),
        node_name=node or default_node_name(),
        node_given=bool(node),
        manifests=read_standard_input() if manifests == _STANDARD_INPUT else manifests,
        kubeconfig=kubeconfig,
        adopt=adopt,
        rejected=rejected is not None,
    )
