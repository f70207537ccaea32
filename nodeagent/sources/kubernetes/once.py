"""The cluster at one moment, without watching: the source of `plan`, `apply` and `status`."""

from collections.abc import Iterable

from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.discovery import discover
from nodeagent.sources.kubernetes.errors import ForbiddenError, NotFoundError
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.resources import (
    DISCOVERY,
    INGRESS_CLASSES,
    ConfigMapName,
    RelayName,
    Resource,
    assemble,
    config_map_rows,
    not_covered,
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
            is never given for the whole; of something optional that RBAC refuses, `not_covered` tells.
    """
    rows = (*watched(node_name, relay), *config_map_rows(config_maps))
    held = {row.name: tuple(read_list(connection, row).items.values()) for row in rows}
    refused: list[str] = []
    for row in (INGRESS_CLASSES, *_discovered(connection, refused)):
        try:
            held[row.name] = tuple(read_list(connection, row).items.values())
        except ForbiddenError as error:
            refused.append(not_covered(row.name, str(error)))
        except NotFoundError:
            continue  # It went in this moment.
    return assemble(held, refused)


def _discovered(connection: Connection, refused: list[str]) -> tuple[Resource, ...]:
    try:
        return discover(connection)
    except ForbiddenError as error:
        refused.append(not_covered(DISCOVERY, str(error)))
        return ()
