"""The cluster as this node needs to know it, kept up to date: the source of `nodeagent run`.

Fail static: once known, the cluster's state is kept, and only complete answers of a server change it.
"""

import time
from collections.abc import Callable, Iterable

from msgspec import Struct

from nodeagent.model.objects import Snapshot, Unreadable
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.discovery import DiscoveryPoller, discover
from nodeagent.sources.kubernetes.errors import ForbiddenError, NotFoundError
from nodeagent.sources.kubernetes.informers import Coverage, Informer, InformerSet
from nodeagent.sources.kubernetes.list_watch import read_list
from nodeagent.sources.kubernetes.reflector import Reflector, ReflectorCallbacks
from nodeagent.sources.kubernetes.resources import (
    DISCOVERY,
    INGRESS_CLASSES,
    OPTIONAL_NAMES,
    ConfigMapName,
    RelayName,
    Resource,
    config_map_rows,
    not_covered,
    watched,
)
from nodeagent.sources.kubernetes.store import Store
from nodeagent.sources.kubernetes.timing import Timing
from nodeagent.sources.objects.kinds import assembled

_STOP_SECONDS = 0.9


class ResourceState(Struct, frozen=True):
    """The state of one resource, for status and metrics.

    Attributes:
        name: services, ingresses, node, relay-service, relay-endpoints, `configmap NAMESPACE/NAME`;
            ingressclasses, namespaces, optional kinds by plural and group; discovery, whose objects are
            the kinds that are served.
        synced: whether it was listed once.
        objects: how many are in use.
        unreadable: how many can't be read.
        restarts: watches begun after the first.
        relists: lists completed after the first.
        error: what is wrong now, in words for a person; None while all is well.
        last_contact: monotonic seconds (time.monotonic) of the server's last sign of life; None before it.
        ignored: watch events ignored because their type is unknown.
        optional: whether the agent works without it.
        coverage: whether the server provides it.
    """

    name: str
    synced: bool
    objects: int = 0
    unreadable: int = 0
    restarts: int = 0
    relists: int = 0
    error: str | None = None
    last_contact: float | None = None
    ignored: int = 0
    optional: bool = False
    coverage: Coverage = Coverage.WATCHED


class Cluster:
    """Lists and watches everything on which decisions depend, with a daemon thread for each resource.

    Args:
        connection: to the API server; not closed here.
        node_name: this node's name.
        relay: namespace and name of an existing relay Service to watch; None if this node relays itself.
        config_maps: namespaces and names of ingress controllers' ConfigMaps.
        on_change: called after the Snapshot has changed in value, from several threads, perhaps at the same
            time; it should only wake another thread. For example, a Node's heartbeat changes nothing.
        timing: the threads' durations.
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
        self._on_change = on_change
        self._stopped = False
        self._timing = timing or Timing()
        self._waits_until: float | None = None
        self._snapshot: Snapshot | None = None
        self._made_of: tuple[list[tuple[object, ...]], list[Unreadable], list[str]] = ([], [], [])
        self._required: dict[str, Informer] = {}
        for row in (*watched(node_name, relay), *config_map_rows(config_maps)):
            self._require(row)
        self._awaited = frozenset(self._required)
        self._optional = InformerSet(connection, self._timing, self._changed, self._look_again)
        self._discovery = DiscoveryPoller(connection, self._timing, self._found, self._changed)

    def start(self) -> None:
        """Start to list and watch; return at once. Call it only once."""
        for informer in self._required.values():
            informer.reflector.start()
        self._optional.serve([INGRESS_CLASSES])
        self._discovery.start()

    def stop(self) -> None:
        """End all watches within 1 s. `on_change` is not called afterwards; the last Snapshot stays."""
        self._stopped = True
        self._discovery.stop()
        reflectors = [informer.reflector for informer in self._required.values()]
        for reflector in reflectors:
            reflector.stop()
        reflectors += self._optional.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        self._discovery.join(max(0.0, deadline - time.monotonic()))
        for reflector in reflectors:
            reflector.join(max(0.0, deadline - time.monotonic()))

    @property
    def known(self) -> bool:
        """Whether there is a Snapshot: every resource has been listed once.

        It waits for optional kinds as well, so that the hostnames of Routes are not removed at each start. It
        does not wait longer than `optional_wait`, nor if the server says that it has no such kind or denies
        it. It does not wait for a ConfigMap that was added later: until that is listed, everything works as
        without it.
        """
        listed = all(self._required[name].store.synced for name in self._awaited)
        return listed and self._has_waited_for(self._optional.informers().values())

    def snapshot(self) -> Snapshot | None:
        """Return the cluster as last known; None until it is `known`.

        It is the same object, of the same objects, until something changes.
        """
        if not self.known:
            return None
        optional = self._optional.informers()
        informers = self._required | optional
        refused = [
            not_covered(name, informer.reflector.progress.error or "")
            for name, informer in optional.items()
            if informer.is_refused
        ]
        if self._discovery.refused:
            refused.append(not_covered(DISCOVERY, self._discovery.error or ""))
        stores = [informer.store for informer in informers.values()]
        made_of = (
            [store.values() for store in stores],
            [entry for store in stores for entry in store.unreadable()],
            refused,
        )
        if self._snapshot is None or made_of != self._made_of:
            self._snapshot, self._made_of = assembled(*made_of), made_of
        return self._snapshot

    def watch_config_maps(self, names: Iterable[ConfigMapName]) -> None:
        """Watch these ConfigMaps from now on, and no others. Call it after `start`."""
        rows = {row.name: row for row in config_map_rows(names)}
        gone = [
            name
            for name, informer in self._required.items()
            if informer.reflector.resource.kind == "ConfigMap" and name not in rows
        ]
        for name in gone:
            self._required.pop(name).reflector.stop()
        self._awaited = self._awaited.intersection(self._required)
        for name in rows.keys() - self._required.keys():
            self._require(rows[name]).start()

    def states(self) -> tuple[ResourceState, ...]:
        """Return the state of each resource, in a fixed order; also of those that are not served."""
        optional = self._optional.informers()
        return (
            *(_state(name, informer) for name, informer in self._required.items()),
            self._state_of_discovery(),
            *(
                _state(name, optional[name]) if name in optional else self._absent(name)
                for name in OPTIONAL_NAMES
            ),
        )

    def _require(self, row: Resource) -> Reflector:
        store = Store()
        reflector = Reflector(self._connection, row, store, self._timing, ReflectorCallbacks(self._changed))
        self._required[row.name] = Informer(reflector, store)
        return reflector

    def _state_of_discovery(self) -> ResourceState:
        asked = self._discovery
        coverage = Coverage.REFUSED if asked.refused else Coverage.WATCHED
        return ResourceState(
            DISCOVERY,
            synced=asked.answered,
            objects=asked.found,
            error=asked.error,
            optional=True,
            coverage=coverage if asked.answered else Coverage.PENDING,
        )

    def _absent(self, name: str) -> ResourceState:
        known = self._discovery.answered and not self._discovery.refused
        coverage = Coverage.NOT_SERVED if known else Coverage.PENDING
        return ResourceState(name, synced=False, optional=True, coverage=coverage)

    def _has_waited_for(self, optional: Iterable[Informer]) -> bool:
        """Whether the first snapshot need not wait any longer; kinds that appear later delay nothing."""
        now = time.monotonic()
        if self._waits_until is None:
            self._waits_until = now + self._timing.optional_wait
        if self._discovery.answered and all(informer.is_settled for informer in optional):
            self._waits_until = now
        return now >= self._waits_until

    def _found(self, rows: tuple[Resource, ...]) -> None:
        self._optional.serve([INGRESS_CLASSES, *rows])

    def _look_again(self) -> None:
        self._discovery.look_again()

    def _changed(self) -> None:
        if not self._stopped:
            self._on_change()


def _state(name: str, informer: Informer) -> ResourceState:
    objects, unreadable = informer.store.counts()
    progress = informer.reflector.progress
    optional = informer.reflector.resource.optional
    if informer.is_refused:
        coverage = Coverage.REFUSED
    elif optional and informer.is_missing:
        coverage = Coverage.NOT_SERVED
    else:
        coverage = Coverage.WATCHED if informer.store.synced else Coverage.PENDING
    return ResourceState(
        name=name,
        synced=informer.store.synced,
        objects=objects,
        unreadable=unreadable,
        restarts=max(0, progress.watches - 1),
        relists=max(0, progress.lists - 1),
        error=None if coverage is Coverage.NOT_SERVED else progress.error,
        last_contact=progress.last_contact,
        ignored=progress.ignored,
        optional=optional,
        coverage=coverage,
    )


# The cluster at one moment, without watching: the source of `plan`, `apply` and `status`.


def read_cluster(
    connection: Connection,
    node_name: str,
    relay: RelayName | None = None,
    config_maps: Iterable[ConfigMapName] = (),
) -> Snapshot:
    """List everything on which decisions depend, once; change nothing.

    Args:
        connection: to the API server.
        node_name: this node's name.
        relay: namespace and name of an existing relay Service; None if this node relays itself.
        config_maps: namespaces and names of ingress controllers' ConfigMaps.

    Returns:
        The cluster; its `node` is None if there is no such Node.

    Raises:
        SourceError: a list is not available; the text says which, why, and what to do. A part of a cluster
            is never returned as the whole; `not_covered` names optional kinds that RBAC denies.
    """
    rows = (*watched(node_name, relay), *config_map_rows(config_maps))
    listings = [read_list(connection, row) for row in rows]
    refused: list[str] = []
    for row in (INGRESS_CLASSES, *_discovered(connection, refused)):
        try:
            listings.append(read_list(connection, row))
        except ForbiddenError as error:
            refused.append(not_covered(row.name, str(error)))
        except NotFoundError:
            continue  # It was removed in this moment.
    items = [listing.items.values() for listing in listings]
    return assembled(
        [tuple(item.value for item in found if item.value is not None) for found in items],
        [item.unreadable for found in items for item in found if item.unreadable is not None],
        refused,
    )


def _discovered(connection: Connection, refused: list[str]) -> tuple[Resource, ...]:
    try:
        return discover(connection)
    except ForbiddenError as error:
        refused.append(not_covered(DISCOVERY, str(error)))
        return ()
