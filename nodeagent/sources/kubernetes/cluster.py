"""The cluster as this node needs to know it: kept up to date for `nodeagent run`, read once for the others.

Fail static: once known, the cluster's state is kept, and only complete answers of a server change it.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable

from msgspec import Struct

from nodeagent.backoff import Backoff
from nodeagent.errors import SourceError
from nodeagent.model.objects import Snapshot
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ApiError, ForbiddenError, NotFoundError
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.reflector import Coverage, Reflector, Store, Timing
from nodeagent.sources.kubernetes.resources import (
    DISCOVERY,
    EVERYWHERE,
    OPTIONAL_NAMES,
    Name,
    Resource,
    assembled,
    discover,
    not_covered,
    watched,
)

_LOG = logging.getLogger(__name__)

_STOP_SECONDS = 0.9


class ResourceState(Struct, frozen=True):
    """The state of one resource, for the log, the health page and metrics.

    Attributes:
        name: services, ingresses, node, relay-service, relay-endpoints; ingressclasses,
            api-server-endpoints, nodes, namespaces, optional kinds by plural and group; discovery,
            whose objects are the kinds that are served.
        synced: whether it was listed once.
        objects: how many are in use.
        restarts: watches begun after the first.
        relists: lists completed after the first.
        error: what is wrong now, in words for a person; None while all is well.
        optional: whether the agent works without it.
        coverage: whether the server provides it.
    """

    name: str
    synced: bool
    objects: int = 0
    restarts: int = 0
    relists: int = 0
    error: str | None = None
    optional: bool = False
    coverage: Coverage = Coverage.WATCHED


class Cluster:
    """Lists and watches everything on which decisions depend, with a daemon thread for each resource.

    An optional kind is dropped only if both the discovery and its own collection say so: an API server that
    is just starting may list less than it has. What is known of a kind stays while it is only denied.

    Args:
        connection: to the API server; not closed here.
        node_name: this node's name.
        relay: namespace and name of an existing relay Service to watch; None if this node relays itself.
        on_change: called after the Snapshot has changed in value, from several threads, perhaps at the same
            time; it should only wake another thread. For example, a Node's heartbeat changes nothing.
        timing: the threads' durations.
    """

    def __init__(
        self,
        connection: Connection,
        node_name: str,
        relay: Name | None = None,
        *,
        on_change: Callable[[], None] = lambda: None,
        timing: Timing | None = None,
    ) -> None:
        self._connection = connection
        self._on_change = on_change
        self._stopping = threading.Event()
        self._timing = timing or Timing()
        self._waits_until: float | None = None
        self._snapshot: Snapshot | None = None
        self._made_of: tuple[list[tuple[object, ...]], list[str]] = ([], [])
        self._lock = threading.Lock()
        self._discovery = _state_of_discovery(Coverage.PENDING)
        self._looking = threading.Thread(target=self._look, name="discovery", daemon=True)
        rows = (*watched(node_name, relay), *EVERYWHERE)
        self._reflectors = {row.name: self._reflector(row) for row in rows}

    def start(self) -> None:
        """Start to list and watch; return at once. Call it only once."""
        for reflector in self._now():
            reflector.start()
        self._looking.start()

    def stop(self) -> None:
        """End all watches within 1 s. `on_change` is not called afterwards; the last Snapshot stays."""
        with self._lock:
            self._stopping.set()
        reflectors = self._now()
        for reflector in reflectors:
            reflector.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        self._looking.join(max(0.0, deadline - time.monotonic()))
        for reflector in reflectors:
            reflector.join(max(0.0, deadline - time.monotonic()))

    @property
    def known(self) -> bool:
        """Whether there is a Snapshot: every resource has been listed once.

        It waits for optional kinds as well, so that the hostnames of Routes are not removed at each start. It
        does not wait longer than `optional_wait`, nor if the server says that it has no such kind or denies
        it.
        """
        reflectors = self._now()
        required = (each for each in reflectors if not each.resource.optional)
        return all(each.store.synced for each in required) and self._has_waited_for(reflectors)

    def snapshot(self) -> Snapshot | None:
        """Return the cluster as last known, the same object until something changes; None until `known`."""
        if not self.known:
            return None
        reflectors = self._now()
        refused = [
            not_covered(each.resource.name, each.error or "")
            for each in reflectors
            if each.resource.optional and each.coverage is Coverage.REFUSED
        ]
        if self._discovery.coverage is Coverage.REFUSED:
            refused.append(not_covered(DISCOVERY, self._discovery.error or ""))
        made_of = ([each.store.values() for each in reflectors], refused)
        if self._snapshot is None or made_of != self._made_of:
            self._snapshot, self._made_of = assembled(*made_of), made_of
        return self._snapshot

    def states(self) -> tuple[ResourceState, ...]:
        """Return the state of each resource, in a fixed order; also of those that are not served."""
        known = {each.resource.name: each for each in self._now()}
        discovered = self._discovery.coverage is Coverage.WATCHED
        unserved = Coverage.NOT_SERVED if discovered else Coverage.PENDING
        return (
            *(_state(each) for each in known.values() if not each.resource.optional),
            self._discovery,
            *(
                _state(known[name])
                if name in known
                else ResourceState(name, synced=False, optional=True, coverage=unserved)
                for name in OPTIONAL_NAMES
            ),
        )

    def _reflector(self, row: Resource, store: Store | None = None) -> Reflector:
        return Reflector(self._connection, row, self._timing, self._changed, store)

    def _look(self) -> None:
        """Ask again and again what is served; the last result stays while the API does not answer."""
        backoff = Backoff(*self._timing.backoff)
        while not self._stopping.is_set():
            found, before = self._discovery.objects, self._discovery.coverage
            try:
                rows = discover(self._connection)
            except ForbiddenError as error:
                self._discovery = _state_of_discovery(Coverage.REFUSED, found, str(error))
                wait = random.uniform(*self._timing.refused)  # noqa: S311 - spreads load, guards nothing
            except Exception as error:  # noqa: BLE001 - a bug in nodeagent must not end the thread
                if not isinstance(error, SourceError):
                    _LOG.exception("Discovery failed unexpectedly; what is known stays")
                self._discovery = _state_of_discovery(before, found, str(error))
                wait = backoff.next(error.retry_after if isinstance(error, ApiError) else None)
            else:
                self._serve(rows)
                self._discovery = _state_of_discovery(Coverage.WATCHED, len(rows))
                backoff.reset()
                wait = random.uniform(*self._timing.discovery)  # noqa: S311 - as above
            if self._discovery.coverage is not before:
                self._changed()
            self._stopping.wait(wait)

    def _has_waited_for(self, reflectors: Iterable[Reflector]) -> bool:
        """Whether the first snapshot need not wait any longer; kinds that appear later delay nothing."""
        now = time.monotonic()
        if self._waits_until is None:
            self._waits_until = now + self._timing.optional_wait
        discovered = self._discovery.coverage is not Coverage.PENDING
        if discovered and all(each.coverage is not Coverage.PENDING for each in reflectors):
            self._waits_until = now
        return now >= self._waits_until

    def _now(self) -> list[Reflector]:
        with self._lock:
            return list(self._reflectors.values())

    def _serve(self, rows: tuple[Resource, ...]) -> None:
        """Watch the kinds that are served, and no longer those that are removed; idempotent."""
        wanted = {row.name: row for row in (*EVERYWHERE, *rows)}
        with self._lock:
            if self._stopping.is_set():
                return
            # That of namespaces goes on.
            gone = [
                name
                for name, each in self._reflectors.items()
                if name not in wanted and each.coverage is Coverage.NOT_SERVED
            ]
            removed = [self._reflectors.pop(name) for name in gone]
            for row in wanted.values():
                self._watch(row)
        for each in removed:
            each.stop()
        if removed:
            self._changed()

    def _watch(self, row: Resource) -> None:
        known = self._reflectors.get(row.name)
        if known is not None and known.resource.path == row.path:
            return
        if known is not None:
            known.stop()
        # In another version they are the same objects: the held ones stay until they are listed in it.
        self._reflectors[row.name] = self._reflector(row, known.store if known is not None else None)
        self._reflectors[row.name].start()

    def _changed(self) -> None:
        if not self._stopping.is_set():
            self._on_change()


def _state_of_discovery(coverage: Coverage, found: int = 0, error: str | None = None) -> ResourceState:
    synced = coverage is not Coverage.PENDING
    return ResourceState(DISCOVERY, synced, found, error=error, optional=True, coverage=coverage)


def _state(reflector: Reflector) -> ResourceState:
    coverage = reflector.coverage
    return ResourceState(
        name=reflector.resource.name,
        synced=reflector.store.synced,
        objects=len(reflector.store),
        restarts=max(0, reflector.watches - 1),
        relists=max(0, reflector.lists - 1),
        error=None if coverage is Coverage.NOT_SERVED else reflector.error,
        optional=reflector.resource.optional,
        coverage=coverage,
    )


def read_cluster(connection: Connection, node_name: str, relay: Name | None = None) -> Snapshot:
    """List everything on which decisions depend, once; change nothing.

    Args:
        connection: to the API server.
        node_name: this node's name.
        relay: namespace and name of an existing relay Service; None if this node relays itself.

    Returns:
        The cluster; its `node` is None if there is no such Node.

    Raises:
        SourceError: a list is not available; the text says which, why, and what to do. A part of a cluster
            is never returned as the whole; `not_covered` names optional kinds that RBAC denies.
    """
    rows = [*watched(node_name, relay), *EVERYWHERE]
    found: list[tuple[object, ...]] = []
    refused: list[str] = []
    try:
        rows += discover(connection)
    except ForbiddenError as error:
        refused.append(not_covered(DISCOVERY, str(error)))
    for row in rows:
        try:
            values = [item.value for item in read_list(connection, row).items.values()]
            found.append(tuple(value for value in values if value is not None))
        except (ForbiddenError, NotFoundError) as error:
            if not row.optional:
                raise
            if isinstance(error, ForbiddenError):  # else it was removed in this moment
                refused.append(not_covered(row.name, str(error)))
    return assembled(found, refused)
