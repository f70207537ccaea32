"""The cluster at one moment, without watching: the source of `plan`, `apply` and `status`."""

from collections.abc import Iterable

from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.resources import (
    ConfigMapName,
    RelayName,
    assemble,
    config_map_rows,
    watched,
)


def read_cluster(
    connection: Connection,
    node_name: str,
    relay: RelayName | None = None,
    config_maps: Iterable[ConfigMapName] = (),
) -> Snapshot:
    """Lists everything that decisions rest on, once; changes nothing.

    Args:
        connection: to the API server.
        node_name: this node's name.
        relay: namespace and name of an existing relay Service; None where this node relays itself.
        config_maps: namespaces and names of ingress controllers' ConfigMaps.

    Returns:
        The cluster; its `node` is None where there is no such Node.

    Raises:
        SourceError: a list could not be had; the text says which, why, and what to do. A part of a cluster
            is never given for the whole.
    """
    rows = (*watched(node_name, relay), *config_map_rows(config_maps))
    return assemble({row.name: tuple(read_list(connection, row).items.values()) for row in rows})
