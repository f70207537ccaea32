"""The cluster as this node needs to know it, kept up to date: the source of `nodeagent run`.

Fail static: once known, the cluster's state is given for ever, changed only by what a server said in full.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.holding import Holding
from nodeagent.sources.kubernetes.reflector import Reflector, Timing
from nodeagent.sources.kubernetes.resources import (
    ConfigMapName,
    RelayName,
    Resource,
    assemble,
    config_map_rows,
    watched,
)

_STOP_SECONDS = 0.9


@dataclass(frozen=True, slots=True)
class ResourceState:
    """How it stands with one resource, for status and metrics.

    Attributes:
        name: services, ingresses, node, relay-service, relay-endpoints or `configmap NAMESPACE/NAME`.
        synced: whether it was listed once.
        objects: how many are in use.
        unreadable: how many can't be read.
        restarts: watches begun after the first.
        relists: lists completed after the first.
        error: what is wrong now, in words for a person; None while all is well.
        last_contact: monotonic seconds (time.monotonic) of the server's last sign of life; None before it.
        ignored: watch events passed over because their type is unknown.
    """

    name: str
    synced: bool
    objects: int
    unreadable: int
    restarts: int
    relists: int
    error: str | None
    last_contact: float | None
    ignored: int = 0


class Cluster:
    """Lists and watches everything that decisions rest on, a daemon thread for each resource.

    Args:
        connection: to the API server; not closed here.
        node_name: this node's name.
        relay: namespace and name of an existing relay Service to watch; None where this node relays itself.
        config_maps: namespaces and names of ingress controllers' ConfigMaps.
        on_change: called after the Snapshot has changed in value, from several threads, perhaps at the same
            time; it should only wake somebody. A Node's heartbeat, say, changes nothing.
        timing: how patient the threads are.
    """

    def __init__(  # noqa: PLR0913 - what is watched, and how
        self,
        connection: Connection,
        node_name: str,
        relay: RelayName | None = None,
        *,
        on_change: Callable[[], None] = lambda: None,
        timing: Timing | None = None,
        config_maps: Iterable[ConfigMapName] = (),
    ) -> None:
        self._connection = connection
        self._timing = timing or Timing()
        self._on_change = on_change
        self._stopped = False
        self._holdings: dict[str, Holding] = {}
        self._reflectors: list[Reflector] = []
        for resource in (*watched(node_name, relay), *config_map_rows(config_maps)):
            self._add(resource)
        self._awaited = frozenset(self._holdings)

    def start(self) -> None:
        """Begins to list and watch; returns at once. To be called once."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """Ends all watches within 1 s. `on_change` is not called afterwards; the last Snapshot stays."""
        self._stopped = True
        for reflector in self._reflectors:
            reflector.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        for reflector in self._reflectors:
            reflector.join(max(0.0, deadline - time.monotonic()))

    def snapshot(self) -> Snapshot | None:
        """Gives the cluster as last known; None until every resource has been listed once.

        A ConfigMap that was added later is not waited for: until it is listed all goes on as without it.
        """
        if not all(self._holdings[name].synced for name in self._awaited):
            return None
        return assemble({name: holding.items() for name, holding in self._holdings.items()})

    def watch_config_maps(self, names: Iterable[ConfigMapName]) -> None:
        """Watches these ConfigMaps from now on, and no others. To be called after `start`."""
        rows = {row.name: row for row in config_map_rows(names)}
        gone = [
            each
            for each in self._reflectors
            if each.resource.kind == "ConfigMap" and each.resource.name not in rows
        ]
        for reflector in gone:
            reflector.stop()
            self._reflectors.remove(reflector)
            del self._holdings[reflector.resource.name]
        self._awaited = self._awaited.intersection(self._holdings)
        for name in rows.keys() - self._holdings.keys():
            self._add(rows[name]).start()

    def states(self) -> tuple[ResourceState, ...]:
        """Gives how it stands with each resource, in a fixed order."""
        return tuple(self._state(reflector) for reflector in self._reflectors)

    def _add(self, resource: Resource) -> Reflector:
        holding = self._holdings[resource.name] = Holding()
        reflector = Reflector(self._connection, resource, holding, self._timing, self._changed)
        self._reflectors.append(reflector)
        return reflector

    def _state(self, reflector: Reflector) -> ResourceState:
        holding = self._holdings[reflector.resource.name]
        objects, unreadable = holding.counts()
        progress = reflector.progress
        return ResourceState(
            name=reflector.resource.name,
            synced=holding.synced,
            objects=objects,
            unreadable=unreadable,
            restarts=max(0, progress.watches - 1),
            relists=max(0, progress.lists - 1),
            error=progress.error,
            last_contact=progress.last_contact,
            ignored=progress.ignored,
        )

    def _changed(self) -> None:
        if not self._stopped:
            self._on_change()
