"""The cluster as this node needs to know it, kept up to date: the source of `nodeagent run`.

Fail static: once known, the cluster's state is given for ever, changed only by what a server said in full.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.holding import Holding
from nodeagent.sources.kubernetes.reflector import Reflector, Timing
from nodeagent.sources.kubernetes.resources import RelayName, assemble, watched

_STOP_SECONDS = 0.9


@dataclass(frozen=True, slots=True)
class ResourceState:
    """How it stands with one resource, for status and metrics.

    Attributes:
        name: services, ingresses, node, relay-service or relay-endpoints.
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
        on_change: called after the Snapshot has changed in value, from several threads, perhaps at the same
            time; it should only wake somebody. A Node's heartbeat, say, changes nothing.
        timing: how patient the threads are.
    """

    def __init__(
        self,
        connection: Connection,
        node_name: str,
        relay: RelayName | None = None,
        on_change: Callable[[], None] = lambda: None,
        timing: Timing | None = None,
    ) -> None:
        self._on_change = on_change
        self._stopped = False
        self._holdings = {resource.name: Holding() for resource in watched(node_name, relay)}
        self._reflectors = [
            Reflector(connection, resource, self._holdings[resource.name], timing or Timing(), self._changed)
            for resource in watched(node_name, relay)
        ]

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
        """Gives the cluster as last known; None until every resource has been listed once."""
        if not all(holding.synced for holding in self._holdings.values()):
            return None
        return assemble({name: holding.items() for name, holding in self._holdings.items()})

    def states(self) -> tuple[ResourceState, ...]:
        """Gives how it stands with each resource, in a fixed order."""
        return tuple(self._state(reflector) for reflector in self._reflectors)

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
