"""The objects of one resource as last seen, and the rules by which an event changes them."""

import threading
from collections.abc import Mapping

from nodeagent.sources.kubernetes.list_watch import Key
from nodeagent.sources.kubernetes.resources import Item


class Store:
    """What is known of one resource; kept until something newer is known (fail static).

    Every method may be called from any thread; each change happens in one step. Each change is idempotent:
    repeating it, or an older one after it, changes nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[Key, Item] = {}
        self._deleted: dict[Key, int] = {}
        self._synced = False

    @property
    def synced(self) -> bool:
        """Whether the resource has been listed once."""
        with self._lock:
            return self._synced

    def items(self) -> tuple[Item, ...]:
        """Gives all objects."""
        with self._lock:
            return tuple(self._items.values())

    def by_key(self) -> Mapping[Key, Item]:
        """Gives a copy of what is held."""
        with self._lock:
            return dict(self._items)

    def counts(self) -> tuple[int, int]:
        """Gives how many objects are in use, and how many can't be read."""
        with self._lock:
            used = sum(item.value is not None for item in self._items.values())
            return used, sum(item.unreadable is not None for item in self._items.values())

    def replace(self, items: Mapping[Key, Item]) -> bool:
        """Takes over a whole list: what is not in it is gone. Tells whether any value changed.

        The first list counts as a change even if it is empty: now it is known that there is nothing.
        """
        with self._lock:
            changed = not self._synced or _meaning(self._items) != _meaning(items)
            self._items = dict(items)
            self._deleted.clear()
            self._synced = True
            return changed

    def put(self, key: Key, item: Item) -> bool:
        """Takes over an object as it stands now, unless something newer is known.

        Returns:
            Whether the value changed.
        """
        with self._lock:
            held = self._items.get(key)
            newest = held.version if held is not None else self._deleted.get(key, -1)
            if item.version <= newest:
                return False
            self._items[key] = item
            self._deleted.pop(key, None)
            return _differ(held, item)

    def remove(self, key: Key, version: int) -> bool:
        """Drops an object deleted at a version, unless it was created anew since.

        Returns:
            Whether a value went.
        """
        with self._lock:
            held = self._items.get(key)
            if held is not None and held.version > version:
                return False
            self._items.pop(key, None)
            self._deleted[key] = max(version, self._deleted.get(key, -1))
            return _differ(held, None)

    def forget_deletions(self) -> None:
        """Forgets which objects were deleted at which version: a new watch brings nothing from before it."""
        with self._lock:
            self._deleted.clear()


def _differ(one: Item | None, other: Item | None) -> bool:
    nothing = Item(0)
    one, other = one or nothing, other or nothing
    return (one.value, one.unreadable) != (other.value, other.unreadable)


def _meaning(items: Mapping[Key, Item]) -> dict[Key, tuple[object, object]]:
    return {
        key: (item.value, item.unreadable)
        for key, item in items.items()
        if item.value is not None or item.unreadable is not None
    }
