"""Gathers the node's facts, from the appliers' reading and from what no applier owns, into one value."""

from collections.abc import Iterable
from pathlib import Path

from nodeagent.agent.appliers import Appliers
from nodeagent.config.options import Config
from nodeagent.errors import ApplyError
from nodeagent.model.facts import Facts
from nodeagent.sources.node.api_server import find_api_servers
from nodeagent.sources.node.identity import own_names, source_addresses
from nodeagent.sources.node.listening_sockets import taken_ports


def gather_facts(
    node_name: str, config: Config, appliers: Appliers, kubeconfigs: Iterable[Path], *, adopt: bool
) -> Facts:
    """Reads the node once. Changes nothing and needs no right that an ordinary user lacks.

    A hosts file that can't be read leaves its names unknown; its applier then reports the same error, and
    writes nothing.
    """
    api = find_api_servers(kubeconfigs)
    relay_networks = (config.relay.ipv4, config.relay.ipv6)
    sources = tuple(
        address for address in source_addresses() if not any(address in network for network in relay_networks)
    )
    try:
        user_names = appliers.hosts.read().outside_names()
    except ApplyError:
        user_names = {}
    if adopt:
        user_names = {name: line for name, line in user_names.items() if not line.by_hairpin_proxy}
    return Facts(
        node_name=node_name,
        node_names=own_names(node_name),
        addresses=appliers.addresses.read().addresses,
        api_servers=api.endpoints,
        api_server_names=api.names,
        source_addresses=sources,
        taken_ports=taken_ports(),
        user_names=user_names,
        notes=api.notes,
    )
