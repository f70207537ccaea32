"""One resource kept up to date, whether the API server provides it, and the set of those that change."""

import threading
from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ForbiddenError, NotFoundError
from nodeagent.sources.kubernetes.reflector import Reflector, ReflectorCallbacks
from nodeagent.sources.kubernetes.resources import Resource
from nodeagent.sources.kubernetes.store import Store
from nodeagent.sources.kubernetes.timing import Timing


class Coverage(StrEnum):
    """Whether the API server provides a resource."""

    WATCHED = "watched"
    PENDING = "pending"
    """It is expected: a request is under way, or the server fails."""
    REFUSED = "refused"
    """RBAC denies it; what was known before stays."""
    NOT_SERVED = "not-served"
    """This server has no such kind."""


class Informer(Struct, frozen=True):
    """One resource that is kept up to date, and its objects."""

    reflector: Reflector
    store: Store

    @property
    def is_settled(self) -> bool:
        """Whether it is known, or the server said that it is not available."""
        return self.store.synced or self.is_missing or self.is_refused

    @property
    def is_missing(self) -> bool:
        """Whether the server says now that there is no such resource."""
        return self.reflector.progress.failure is NotFoundError

    @property
    def is_refused(self) -> bool:
        """Whether the server says now that RBAC denies it."""
        return self.reflector.progress.failure is ForbiddenError


class InformerSet:
    """Starts and ends watches as kinds are installed and removed; every method may be called from any thread.

    A kind is dropped only if both the discovery and its own collection say so: an API server that is just
    starting may list less than it has. What is known of a kind stays while it is only denied.

    Args:
        connection: to the API server.
        timing: the watches' durations.
        on_change: called after a held object has changed.
        on_missing: called when a collection turns out not to exist.
    """

    def __init__(
        self,
        connection: Connection,
        timing: Timing,
        on_change: Callable[[], None],
        on_missing: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._timing = timing
        self._on_change = on_change
        self._on_missing = on_missing
        self._lock = threading.Lock()
        self._informers: dict[str, Informer] = {}
        self._stopped = False

    def informers(self) -> dict[str, Informer]:
        """Return a copy of the set, by the resources' names."""
        with self._lock:
            return dict(self._informers)

    def serve(self, rows: Iterable[Resource]) -> None:
        """Take over what the API server has; idempotent."""
        wanted = {row.name: row for row in rows}
        with self._lock:
            if self._stopped:
                return
            changed = self._drop(wanted)
            for row in wanted.values():
                self._watch(row)
        if changed:
            self._on_change()

    def stop(self) -> list[Reflector]:
        """Signal all watches to end; return their reflectors, to be joined."""
        with self._lock:
            self._stopped = True
            reflectors = [informer.reflector for informer in self._informers.values()]
        for reflector in reflectors:
            reflector.stop()
        return reflectors

    def _drop(self, wanted: dict[str, Resource]) -> bool:
        """End watches of removed kinds and of those read only for them; return whether any had objects."""
        gone = [
            name for name, informer in self._informers.items() if name not in wanted and informer.is_missing
        ]
        held = [self._end(name) for name in gone]
        orphans = [
            name
            for name, informer in self._informers.items()
            if name not in wanted and informer.reflector.resource.only_with not in {"", *self._informers}
        ]
        held += [self._end(name) for name in orphans]
        return any(held)

    def _end(self, name: str) -> bool:
        informer = self._informers.pop(name)
        informer.reflector.stop()
        return not informer.store.is_empty()

    def _watch(self, row: Resource) -> None:
        known = self._informers.get(row.name)
        if known is not None and known.reflector.resource.path == row.path:
            return
        if known is not None:
            known.reflector.stop()
        # In another version they are the same objects: the held ones stay until they are listed in it.
        store = known.store if known is not None else Store()
        reflector = Reflector(
            self._connection, row, store, self._timing, ReflectorCallbacks(self._on_change, self._refused)
        )
        self._informers[row.name] = Informer(reflector, store)
        reflector.start()

    def _refused(self, failure: type[Exception]) -> None:
        # A caller may wait for a snapshot until it is known which kinds it can contain.
        self._on_change()
        if failure is NotFoundError:
            self._on_missing()
