"""Gathers the facts of this node into one value: those of its components, and those of no component."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from nodeagent.components.node import ON_LINUX, ActualState
from nodeagent.config.options import Config
from nodeagent.errors import ApplyError
from nodeagent.model.addresses import IPAddress
from nodeagent.model.desired import HostsLine
from nodeagent.model.facts import Facts, UserHostsLine
from nodeagent.model.objects import Snapshot
from nodeagent.plan.balancers.eligibility import doubtful_endpoints
from nodeagent.sources.api_servers import ApiServers
from nodeagent.sources.node import caught_addresses, ipv6_switched_off, own_names, source_addresses


def read_facts(  # noqa: PLR0913, PLR0917 - each a source of facts of its own
    node_name: str,
    config: Config,
    snapshot: Snapshot,
    actual: ActualState,
    api: ApiServers,
    earlier: Facts | None = None,
) -> Facts:
    """Read what changes seldom and costs most to read; an ordinary user can.

    The rules for Services (which need root) are read only if `snapshot` has a load balancer for which they
    matter. If they can't be, a note says so, and what the `earlier` facts had of them still counts. Elsewhere
    than on Linux, only the objects are known.
    """
    api = api.with_published(snapshot.api_servers)
    facts = Facts(
        node_name=node_name,
        node_names=own_names(node_name),
        api_servers=api.endpoints,
        api_server_names=api.names,
        notes=api.notes,
    )
    if not ON_LINUX:
        return facts
    relay_networks = (config.relay.ipv4, config.relay.ipv6)
    addresses = actual.addresses.state().addresses
    rules = caught_addresses(doubtful_endpoints(snapshot, config), addresses)
    if earlier is not None:
        rules = rules.after(earlier.short_circuited)
    return replace(
        facts,
        addresses=addresses,
        source_addresses=tuple(
            address
            for address in source_addresses()
            if not any(address in network for network in relay_networks)
        ),
        port_holders=actual.components.relay.port_holders(),
        ipv6_off=ipv6_switched_off(config.relay.interface if config.relay.kind == "node" else "lo"),
        short_circuited=rules.caught,
        notes=(*api.notes, *rules.notes),
    )


def with_hosts_file(
    facts: Facts, config: Config, actual: ActualState, *, adopt: bool, wanted: tuple[HostsLine, ...] = ()
) -> Facts:
    """Return the facts with the names of the hosts file as it is now; if it can't be read, they are unknown.

    They have the addresses of the lines that were `wanted` last: a block as it was written for these adds
    nothing.
    """
    standing = facts.standing_names
    user_names: Mapping[str, UserHostsLine] = {}
    with suppress(ApplyError):
        state = actual.hosts.state()
        user_names = state.user_names
        if config.hosts.verify == "dns" and (not wanted or state.lines is not wanted):
            nothing = frozenset[IPAddress]()
            added = {name: each | standing.get(name, nothing) for name, each in state.own_names.items()}
            standing = {**standing, **added}
    if adopt:
        user_names = {name: line for name, line in user_names.items() if not line.by_hairpin_proxy}
    return replace(facts, user_names=user_names, standing_names=standing)
