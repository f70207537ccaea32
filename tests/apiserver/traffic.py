"""What the server saw and sent, for tests to wait on and to count."""

import os
import select
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase

from .requests import Asked

_SECONDS = 20.0


class Ending(Enum):
    """How a stream ends."""

    CLEAN = "clean"  # the last chunk is sent, the connection may be used again
    DROP = "drop"  # the connection is closed in the middle
    RESET = "reset"  # the connection is reset


@dataclass(eq=False)
class OpenWatch:
    """One open stream; `ending` says how it must end now."""

    asked: Asked
    connection: socket.socket
    ending: Ending | None = None
    _told: int = field(default_factory=lambda: os.eventfd(0))

    @property
    def path(self) -> str:
        return self.asked.path

    def end(self, how: Ending) -> None:
        self.ending = how
        os.eventfd_write(self._told, 1)

    def is_over(self, *, wait: bool = False) -> bool:
        """Whether nothing more is to be sent: it must end, or the client went away; perhaps wait for that."""
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP)
        poll.register(self._told, select.POLLIN)
        return bool(poll.poll(None if wait else 0))

    def close(self) -> None:
        os.close(self._told)


class Traffic:
    """Counters and the conditions on them; every method may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seen: list[Asked] = []
        self._watches: list[OpenWatch] = []

    def arrived(self, asked: Asked) -> None:
        with self._changed:
            self._seen.append(asked)
            self._changed.notify_all()

    @contextmanager
    def watching(self, asked: Asked, connection: socket.socket) -> Iterator[OpenWatch]:
        """Know of a stream while it is open."""
        watch = OpenWatch(asked, connection)
        with self._changed:
            self._watches.append(watch)
            self._changed.notify_all()
        try:
            yield watch
        finally:
            with self._changed:
                self._watches.remove(watch)
                watch.close()

    def end_watches(self, how: Ending, bases: Collection[str] | None = None) -> None:
        """End all open streams, or those on resources of these paths; who sends their lines must be woken."""
        with self._changed:
            for watch in self._watches:
                if bases is None or f"{watch.asked.base}/{watch.asked.plural}" in bases:
                    watch.end(how)

    def seen(self, verb: str = "*", path: str = "*") -> list[Asked]:
        """Return the requests so far whose verb and path match the glob patterns, in order of arrival."""
        with self._changed:
            return [one for one in self._seen if fnmatchcase(one.verb, verb) and fnmatchcase(one.path, path)]

    def watches(self, resource: str = "*") -> list[OpenWatch]:
        with self._changed:
            return [watch for watch in self._watches if fnmatchcase(watch.asked.plural, resource)]

    def wait_for_requests(self, verb: str, path: str, count: int = 1) -> None:
        """Return when at least `count` requests matched the patterns; TimeoutError when they do not come."""
        self._wait(lambda: len(self.seen(verb, path)) >= count, f"{count} x {verb} {path}")

    def wait_for_watch(self, resource: str) -> None:
        self._wait(lambda: bool(self.watches(resource)), f"an open watch on {resource}")

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(done, _SECONDS):
                raise TimeoutError(f"waited {_SECONDS} s for {what}")
