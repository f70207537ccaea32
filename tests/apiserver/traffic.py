"""What the server saw and sent, for tests to wait on and to count."""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .resources import Resource

if TYPE_CHECKING:
    from .watches import Ending

_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it arrived."""

    verb: str
    path: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OpenWatch:
    """One open stream, and what ends it."""

    resource: Resource
    path: str
    end: "Callable[[Ending], None]"


class Traffic:
    """Counters and the conditions on them; every method may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._watches: list[OpenWatch] = []

    # The server tells

    def arrived(self, seen: Seen) -> None:
        """Count a request."""
        with self._changed:
            self._seen.append(seen)
            self._changed.notify_all()

    def opened(self, watch: OpenWatch) -> None:
        """Note that a stream began."""
        with self._changed:
            self._watches.append(watch)
            self._changed.notify_all()

    def closed(self, watch: OpenWatch) -> None:
        """Note that a stream ended."""
        with self._changed:
            self._watches.remove(watch)
            self._changed.notify_all()

    def end_watches(self, how: "Ending", rows: Collection[Resource]) -> None:
        """End all open streams on these resources."""
        with self._changed:
            for watch in self._watches:
                if watch.resource in rows:
                    watch.end(how)

    # Tests ask

    def seen(self, verb: str = "*", path: str = "*") -> list[Seen]:
        """Give the requests so far whose verb and path match the glob patterns, in order of arrival."""
        with self._changed:
            return [one for one in self._seen if fnmatchcase(one.verb, verb) and fnmatchcase(one.path, path)]

    def watches(self, resource: str = "*") -> list[OpenWatch]:
        """Give the open streams on resources whose plural matches the glob pattern."""
        with self._changed:
            return [watch for watch in self._watches if fnmatchcase(watch.resource.plural, resource)]

    def wait_for_requests(self, verb: str, path: str, count: int = 1) -> None:
        """Return when at least `count` requests matched the patterns; TimeoutError when they do not come."""
        self._wait(lambda: len(self.seen(verb, path)) >= count, f"{count} x {verb} {path}")

    def wait_for_watch(self, resource: str) -> None:
        """Return when a stream on a resource is open; TimeoutError when none is."""
        self._wait(lambda: bool(self.watches(resource)), f"an open watch on {resource}")

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(done, _SECONDS):
                raise TimeoutError(f"waited {_SECONDS} s for {what}")
