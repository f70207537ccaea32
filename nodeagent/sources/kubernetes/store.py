"""The objects of one resource as last seen, and the rules by which an event changes them."""

import threading
from collections.abc import Mapping

from nodeagent.model.objects import Unreadable
from nodeagent.sources.kubernetes.resources import Item, Key


class Store:
    """What is known of one resource; kept until something newer is known (fail static).

    Every method may be called from any thread; each change happens in one step. Each change is idempotent:
    repeating it changes nothing.

    Attributes:
        synced: whether the resource has been listed once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[Key, Item] = {}
        self.synced = False
        # What was returned last; None after a change.
        self._values: tuple[object, ...] | None = None
        self._unreadable: tuple[Unreadable, ...] | None = None

    def values(self) -> tuple[object, ...]:
        """Return the values of all objects in use; the same object until one changes."""
        with self._lock:
            if self._values is None:
                values = (item.value for item in self._items.values())
                self._values = tuple(value for value in values if value is not None)
            return self._values

    def unreadable(self) -> tuple[Unreadable, ...]:
        """Return why objects can't be read."""
        with self._lock:
            if self._unreadable is None:
                reasons = (item.unreadable for item in self._items.values())
                self._unreadable = tuple(reason for reason in reasons if reason is not None)
            return self._unreadable

    def __len__(self) -> int:
        """Return how many objects are in use."""
        return len(self.values())

    def replace(self, items: Mapping[Key, Item]) -> bool:
        """Take over a whole list: what is not in it is gone. Return whether any value changed.

        The first list counts as a change even if it is empty: now it is known that there is nothing.
        """
        with self._lock:
            news = not self.synced
            self.synced = True
            for key in self._items.keys() - items.keys():
                news |= self._hold(key, None)
            for key, item in items.items():
                news |= self._hold(key, item)
            return news

    def put(self, key: Key, item: Item) -> bool:
        """Take over an object as it is now, unless something newer is known.

        Returns:
            Whether the value changed.
        """
        with self._lock:
            held = self._items.get(key)
            return (held is None or item.version > held.version) and self._hold(key, item)

    def remove(self, key: Key, version: int) -> bool:
        """Drop an object deleted at a version, unless it was created again since.

        Returns:
            Whether a value was removed.
        """
        with self._lock:
            held = self._items.get(key)
            return (held is None or held.version <= version) and self._hold(key, None)

    def _hold(self, key: Key, item: Item | None) -> bool:
        """Hold an object, or no longer; return whether its value changed: otherwise the old one stays."""
        before, after = self._items.get(key, _NOTHING), item or _NOTHING
        changed = (after.value, after.unreadable) != (before.value, before.unreadable)
        if item is None:
            self._items.pop(key, None)
        else:
            self._items[key] = item if changed else Item(item.version, before.value, before.unreadable)
        if changed:
            self._values = self._unreadable = None
        return changed


_NOTHING = Item(0)
