"""The inputs of a command that acts once: its configuration, this node, the cluster.

The code that reads a cluster is imported only when one is read: with manifests, a command starts without it.
"""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from msgspec import Struct

from nodeagent.agent.node_facts import read_facts, with_hosts_file
from nodeagent.agent.status_file import read_rejected
from nodeagent.cli.command_options import connect
from nodeagent.cli.terminal import block, show
from nodeagent.components.node import ActualState, build_components
from nodeagent.config.options import Config
from nodeagent.config.reading import parse_config, read_config
from nodeagent.dns.verifier import ask_once
from nodeagent.errors import ConfigError, one_line, quoted
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import Desired
from nodeagent.model.facts import Facts, InterfaceAddress
from nodeagent.model.objects import Node, Snapshot
from nodeagent.plan.planner import plan
from nodeagent.sources.api_servers import find_api_servers
from nodeagent.sources.kubernetes.single_requests import ClusterAnswers
from nodeagent.sources.manifests import read_manifests, read_standard_input
from nodeagent.sources.node import default_node_name

_SHOWN_NAMES = 5
_REJECTED = (
    "the agent rejected that configuration, and this is reported by the one that is active: correct it"
)
_STANDARD_INPUT = Path("-")


class View(Struct, frozen=True):
    """One moment: the cluster, this node, its desired state, and the actual one, read when it is needed."""

    snapshot: Snapshot
    facts: Facts
    desired: Desired
    actual: ActualState

    @property
    def elsewhere(self) -> str:
        """Why this machine may not be the node of that name; empty if it has one of the Node's addresses."""
        node = self.snapshot.node
        if node is not None:
            return not_this_machine(node, self.facts.addresses, self.facts.source_addresses)
        if self.snapshot.nodes:
            return f"this machine ({self.facts.node_name}) is not a node of this cluster"
        return "no Node was read, so whether this machine is one is unknown"


def not_this_machine(node: Node, standing: Iterable[InterfaceAddress], sources: Iterable[IPAddress]) -> str:
    """Return why this machine is not the Node, by the addresses that are on it; empty if it is."""
    if {each.address for each in standing}.union(sources).intersection(node.addresses):
        return ""
    theirs = ", ".join(map(str, node.addresses)) or "none"
    return f"this machine is not that node: none of Node {node.name}'s addresses ({theirs}) is on it"


def refuse_other_machine(
    node: Node | None, standing: Iterable[InterfaceAddress], sources: Iterable[IPAddress]
) -> None:
    """Raise ConfigError if this machine is known not to be the Node: none of its addresses is here."""
    if node is not None and node.addresses and (why := not_this_machine(node, standing, sources)):
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
        """Return the cluster, this node, and its states now; `of_a_node`: of one that exists.

        A name that was given (`--node`) has to be a Node's in each case. `whole` is as the doctor needs it:
        with hostnames even if none is wanted, and with the addresses of all nodes.

        Hostnames that need verification are looked up, for ten seconds at most.

        Raises:
            ConfigError: there are Nodes, but none has the name: what is decided for a Node that does not
                exist would be wrong for this machine.
            SourceError: the objects are not available.
        """
        snapshot, servers = self._observe(whole=whole)
        unread = any(entry.where.endswith(f"Node {self.node_name}") for entry in snapshot.unreadable)
        if (of_a_node or self.node_given) and snapshot.node is None and not unread:
            self._reject_other_nodes(each.name for each in snapshot.nodes)
        actual = ActualState(build_components(self.config, adopt=self.adopt))
        kubeconfigs = [self.kubeconfig] if self.kubeconfig else []
        api = find_api_servers(kubeconfigs, servers=servers)
        facts = read_facts(self.node_name, self.config, snapshot, actual, api)
        facts = with_hosts_file(facts, self.config, actual, adopt=self.adopt)
        desired = plan(snapshot, facts, self.config)
        if desired.questions:
            facts = replace(facts, dns=ask_once(desired.questions, self.config.hosts))
            desired = plan(snapshot, facts, self.config)
        return View(snapshot, facts, desired, actual)

    def snapshot(self) -> Snapshot:
        """Return the cluster's objects. Raises SourceError if they are not available."""
        return self._observe()[0]

    def ask_cluster(self) -> ClusterAnswers:
        """Return the API server's other data; manifests have none of that. Raises nothing."""
        if self.manifests is not None:
            why = "with --manifests, no cluster is queried"
            return ClusterAnswers(why=dict.fromkeys(("dns", "policy_api"), why))
        from nodeagent.sources.kubernetes.single_requests import ask_cluster  # noqa: PLC0415 - the same

        with connect(self.kubeconfig) as connection:
            return ask_cluster(connection)

    def _observe(self, *, whole: bool = False) -> tuple[Snapshot, list[tuple[str, int]]]:
        """Return the objects, and the API servers (host, port) that provided them."""
        service = self.config.relay.existing_service
        if self.manifests is not None:
            return read_manifests(self.manifests, self.node_name, service), []
        from nodeagent.sources.kubernetes.cluster import read_cluster  # noqa: PLC0415 - see the module's head

        with connect(self.kubeconfig) as connection:
            hostnames = whole or self.config.hosts.enabled
            found = read_cluster(connection, self.node_name, service, hostnames=hostnames, nodes=whole)
            return found, [connection.server]

    def _reject_other_nodes(self, known: Iterable[str]) -> None:
        if names := list(known):
            shown = get_close_matches(self.node_name, names, _SHOWN_NAMES, 0)
            more = len(names) - len(shown)
            raise ConfigError(
                f"no Node is called {quoted(self.node_name)}; nothing was changed. The Nodes are "
                f"{', '.join(map(one_line, shown))}{f' and {more} more' if more else ''}. "
                "Pass the name of this machine's Node: --node NAME"
            )


def invocation(  # noqa: PLR0913 - the options
    *,
    config: Path | None,
    kubeconfig: Path | None,
    node: str | None,
    manifests: Path | None = None,
    adopt: bool = False,
    by_active: bool = False,
) -> Invocation:
    """Read the configuration and determine the node's name. Raises ConfigError.

    With `by_active`, a configuration that the agent here rejected is replaced by the one that it keeps.
    """
    rejected = read_rejected(config) if by_active and config else None
    if rejected:
        show(block(f"nodeagent: {rejected.reason}\n{_REJECTED}"), error=True)
    return Invocation(
        config=parse_config(rejected.active, "active") if rejected else read_config(config),
        node_name=node or default_node_name(),
        node_given=bool(node),
        manifests=read_standard_input() if manifests == _STANDARD_INPUT else manifests,
        kubeconfig=kubeconfig,
        adopt=adopt,
        rejected=rejected is not None,
    )
