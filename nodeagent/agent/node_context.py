"""Gathers the facts of this node into one value: those of its components, and those of no component."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from nodeagent.components.node import ActualState
from nodeagent.config.options import Config
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import Endpoint, IPAddress
from nodeagent.model.desired import HostsLine
from nodeagent.model.facts import DnsAnswer, Facts, InterfaceAddress, UserHostsLine
from nodeagent.model.objects import Snapshot
from nodeagent.plan.eligibility import doubtful_endpoints
from nodeagent.sources.node.api_servers import ApiServers
from nodeagent.sources.node.identity import ipv6_switched_off, own_names, source_addresses
from nodeagent.sources.node.service_proxy import ServiceRules, caught_addresses


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The facts that change seldom and cost most to read: a daemon reads them when it has a reason to."""

    api: ApiServers
    addresses: tuple[InterfaceAddress, ...]
    source_addresses: tuple[IPAddress, ...]
    port_holders: Mapping[Endpoint, int]
    service_rules: ServiceRules


def read_node_context(
    config: Config, snapshot: Snapshot, actual: ActualState, api: ApiServers
) -> NodeContext:
    """Read them once; changes nothing, and needs no right that an ordinary user lacks.

    The rules for Services (which need root) are read only if `snapshot` has a load balancer for which they
    matter. If they can't be read, a note says so. `api` is taken over, with what the cluster publishes.
    """
    relay_networks = (config.relay.ipv4, config.relay.ipv6)
    sources = (
        address for address in source_addresses() if not any(address in network for network in relay_networks)
    )
    doubtful = doubtful_endpoints(snapshot, config)
    addresses = actual.addresses.state().addresses
    holders = actual.components.relay.port_holders()
    api = api.with_published(snapshot.api_servers)
    return NodeContext(api, addresses, tuple(sources), holders, caught_addresses(doubtful, addresses))


def gather_facts(  # noqa: PLR0913 - each a source of facts of its own
    node_name: str,
    context: NodeContext,
    config: Config,
    actual: ActualState,
    *,
    adopt: bool,
    dns: Mapping[str, DnsAnswer] = MappingProxyType({}),
    wanted: tuple[HostsLine, ...] = (),
) -> Facts:
    """Return the facts as they are now, with the answers of DNS so far. Changes nothing, sends nothing.

    If the block is as it was written for the lines that were `wanted` last, it adds nothing to them.

    A hosts file that can't be read leaves its names unknown; its component then reports the same error, and
    writes nothing.
    """
    user_names: Mapping[str, UserHostsLine] = {}
    standing_names: Mapping[str, frozenset[IPAddress]] = {}
    with suppress(ApplyError):
        user_names = actual.hosts.state().user_names
        if config.hosts.verify == "dns" and (not wanted or actual.hosts.state().lines is not wanted):
            standing_names = actual.hosts.state().own_names
    if adopt:
        user_names = {name: line for name, line in user_names.items() if not line.by_hairpin_proxy}
    return Facts(
        node_name=node_name,
        node_names=own_names(node_name),
        addresses=context.addresses,
        api_servers=context.api.endpoints,
        api_server_names=context.api.names,
        source_addresses=context.source_addresses,
        port_holders=context.port_holders,
        ipv6_off=ipv6_switched_off(config.relay.interface if config.relay.kind == "node" else "lo"),
        user_names=user_names,
        standing_names=standing_names,
        dns=dns,
        short_circuited=context.service_rules.caught,
        notes=(*context.api.notes, *context.service_rules.notes),
    )
