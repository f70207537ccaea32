"""Which of the optional kinds this API server has, and in which version.

"API concepts: API group and resource discovery", in its unaggregated form, which every version supports.
Every authenticated user may read it (ClusterRole system:discovery). A watch on CustomResourceDefinitions
would notice at once, but needs the right to read all of them.
"""

import logging
import random
import threading
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from nodeagent.backoff import Backoff
from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import ApiError, ForbiddenError, NotJsonError
from nodeagent.sources.kubernetes.reflector import Coverage, Timing
from nodeagent.sources.kubernetes.resources import NAMESPACES, Resource, optional_resource
from nodeagent.sources.objects.kinds import GATEWAYS, OPTIONAL_KINDS, OptionalKind
from nodeagent.typed_values import from_json

_LOG = logging.getLogger(__name__)

_SECONDS = 15.0


class _Version(Struct):
    version: str


class _Group(Struct):
    name: str
    versions: list[_Version]


class _Groups(Struct):
    groups: list[_Group]


class _Resource(Struct):
    name: str
    verbs: list[str] = field(default_factory=list)


class _Resources(Struct):
    resources: list[_Resource]


_Answer = TypeVar("_Answer")


def discover(connection: Connection) -> tuple[Resource, ...]:
    """Ask what is served; changes nothing.

    Returns:
        A row for each optional kind that is served in a version that can be read, in its best one; and the
        namespaces, by whose labels Gateways choose, if there are Gateways.

    Raises:
        ApiError: one of its kinds. A kind whose discovery failed never counts as absent.
    """
    groups = {
        group.name: {one.version for one in group.versions}
        for group in _ask(connection, "/apis", _Groups).groups
    }

    @cache
    def plurals(group: str, version: str) -> frozenset[str]:
        return served_plurals(connection, group, version)

    def best(kind: OptionalKind) -> str | None:
        """Return the first of the versions that can be read in which the kind is served."""
        known = (version for version in kind.versions if version in groups.get(kind.group, ()))
        return next((version for version in known if kind.plural in plurals(kind.group, version)), None)

    served = [(kind, version) for kind in OPTIONAL_KINDS if (version := best(kind)) is not None]
    rows = tuple(optional_resource(kind, version) for kind, version in served)
    return (*rows, NAMESPACES) if any(kind is GATEWAYS for kind, _ in served) else rows


def served_plurals(connection: Connection, group: str, version: str) -> frozenset[str]:
    """Return the names in paths of what is served of a group's version, and may be listed and watched.

    Raises:
        ApiError: one of its kinds; NotFoundError: there is no such group or version.
    """
    found = _ask(connection, f"/apis/{group}/{version}", _Resources).resources
    return frozenset(one.name for one in found if {"list", "watch"} <= {*one.verbs})


def _ask(connection: Connection, path: str, expected: type[_Answer]) -> _Answer:
    try:
        return from_json(connection.get_json(path, timeout=_SECONDS), expected)
    except msgspec.MsgspecError as error:
        raise NotJsonError(f"get {path}: the answer does not show what is served: {error}") from error


class DiscoveryPoller:
    """A thread that asks and reports; the last result stays valid while the API does not answer.

    Attributes:
        error: what is wrong now, in words for a person; None while all is well.
        coverage: PENDING before the first answer, REFUSED while RBAC denies discovery.
        found: how many kinds were found last.

    Args:
        connection: to the API server.
        timing: how often, and its time limits.
        on_found: called, in this thread, with what is served, each time; with None once it is denied.
    """

    def __init__(
        self, connection: Connection, timing: Timing, on_found: Callable[[tuple[Resource, ...] | None], None]
    ) -> None:
        self.error: str | None = None
        self.coverage = Coverage.PENDING
        self.found = 0
        self._connection = connection
        self._timing = timing
        self._on_found = on_found
        self._backoff = Backoff(*timing.backoff)
        self._wake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)

    def start(self) -> None:
        """Start to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Signal the thread to end; nothing is reported from now on."""
        self._stopped = True
        self._wake.set()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end, at most `timeout` seconds."""
        self._thread.join(timeout)

    def look_again(self) -> None:
        """Ask at once: a request met a kind that does not exist."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            wait = self._look()
            # A signal to end before `clear` would be lost.
            if not self._stopped:
                self._wake.wait(wait)

    def _look(self) -> float:
        """Ask once; return the seconds until the next time."""
        try:
            self._take_over(discover(self._connection))
        except ForbiddenError as error:
            self._tell(error)
            self._take_over(None)
            return random.uniform(*self._timing.refused)  # noqa: S311 - spreads load, guards nothing
        except SourceError as error:
            self._tell(error)
            return self._backoff.next(error.retry_after if isinstance(error, ApiError) else None)
        except Exception as error:  # noqa: BLE001 - logged in full, and shown in `error`
            # A bug in nodeagent must not end the thread: report it, and ask again.
            _LOG.exception("Discovery failed unexpectedly; it is tried again")
            self._tell(error)
            return self._backoff.next()
        self.error = None
        self._backoff.reset()
        return random.uniform(*self._timing.discovery)  # noqa: S311 - as above

    def _take_over(self, rows: tuple[Resource, ...] | None) -> None:
        if self._stopped:
            return
        self.coverage = Coverage.REFUSED if rows is None else Coverage.WATCHED
        self.found = self.found if rows is None else len(rows)
        self._on_found(rows)

    def _tell(self, error: Exception) -> None:
        if self.error != str(error) and not self._stopped:
            _LOG.warning("Discovery failed; what is known stays", extra={"fields": {"err": str(error)}})
        self.error = str(error)
