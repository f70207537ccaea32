"""What a resource's objects are and were: versions, the changes between them, and a shelf of both."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from .resources import Object, Resource

encode = msgspec.json.Encoder().encode


class Version:
    """An object as it was from one revision on; never changed once made.

    `key` is its place among its like, `item` its JSON with everything but kind and apiVersion.
    """

    __slots__ = ("_obj", "item", "key", "revision")

    def __init__(self, key: str, revision: int, item: bytes) -> None:
        self.key = key
        self.revision = revision
        self.item = item
        self._obj: Object | None = None

    @property
    def obj(self) -> Object:
        """The same as `item`, decoded when first asked for: it must not be changed."""
        if self._obj is None:
            self._obj = msgspec.json.decode(self.item, type=Object)
        return self._obj

    def typed(self, resource: Resource) -> bytes:
        """Give the object as JSON with its kind and apiVersion."""
        head = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'
        return head.encode() + self.item[1:]

    def copy(self, resource: Resource) -> Object:
        """Give the object with its kind and apiVersion, as a copy."""
        return msgspec.json.decode(self.typed(resource), type=Object)

    def at(self, revision: int) -> "Version":
        """Give the same content under a later revision, as DELETED events carry it."""
        obj = {**self.obj, "metadata": {**self.obj["metadata"], "resourceVersion": str(revision)}}
        return Version(self.key, revision, encode(obj))


@dataclass(frozen=True, slots=True)
class Change:
    """One write: the object before and after it; `new` is None for a deletion."""

    revision: int
    old: Version | None
    new: Version | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects of a resource at one revision, in the order of their keys."""

    revision: int
    versions: Sequence[Version]


Receiver = Callable[[Change], None]


class Shelf:
    """What the store keeps of one resource."""

    def __init__(self) -> None:
        self.current: dict[str, Version] = {}
        self.history: list[Change] = []
        self.receivers: list[Receiver] = []

    def record(self, change: Change) -> None:
        """Take a change over, and hand it on."""
        if change.new is not None:
            self.current[change.new.key] = change.new
        elif change.old is not None:
            del self.current[change.old.key]
        self.history.append(change)
        for receive in self.receivers:
            receive(change)

    def after(self, revision: int) -> list[Change]:
        """Give the changes after a revision."""
        return self.history[bisect_right(self.history, revision, key=lambda change: change.revision) :]

    def ordered_at(self, revision: int) -> list[Version]:
        """Give all objects as they were at a revision, in the order of their keys."""
        past = dict(self.current)
        for change in reversed(self.after(revision)):
            if change.old is not None:
                past[change.old.key] = change.old
            elif change.new is not None:
                past.pop(change.new.key, None)
        return [past[key] for key in sorted(past)]
