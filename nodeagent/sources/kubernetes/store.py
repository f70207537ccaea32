"""The objects of one resource as last seen, and the rules by which an event changes them."""

import threading
from collections.abc import Mapping
from typing import TypeVar

from nodeagent.model.objects import Unreadable
from nodeagent.plan.incremental import SortedRows
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
        self._values: SortedRows[Key, object] = SortedRows()
        self._unreadable: SortedRows[Key, Unreadable] = SortedRows()

    def values(self) -> tuple[object, ...]:
        """Return the values of all objects in use, sorted by key; the same object until one changes."""
        with self._lock:
            return self._values.rows()

    def unreadable(self) -> tuple[Unreadable, ...]:
        """Return why objects can't be read."""
        with self._lock:
            return self._unreadable.rows()

    def __len__(self) -> int:
        """Return how many objects are in use."""
        with self._lock:
            return len(self._values)

    def replace(self, items: Mapping[Key, Item]) -> bool:
        """Take over a whole list: what is not in it is gone. Return whether any value changed.

        The first list counts as a change even if it is empty: now it is known that there is nothing.
        """
        with self._lock:
            before, self._items = self._items, {}
            changed: dict[Key, Item | None] = {key: None for key in before if key not in items}
            changed |= {k: item for k, item in items.items() if not self._hold(k, item, before.get(k))}
            news = self._show(changed) or not self.synced
            self.synced = True
            return news

    def put(self, key: Key, item: Item) -> bool:
        """Take over an object as it is now, unless something newer is known.

        Returns:
            Whether the value changed.
        """
        with self._lock:
            held = self._items.get(key)
            if held is not None and item.version <= held.version:
                return False
            return not self._hold(key, item, held) and self._show({key: item})

    def remove(self, key: Key, version: int) -> bool:
        """Drop an object deleted at a version, unless it was created again since.

        Returns:
            Whether a value was removed.
        """
        with self._lock:
            held = self._items.get(key)
            if held is not None and held.version > version:
                return False
            self._items.pop(key, None)
            return self._show({key: None})

    def _hold(self, key: Key, item: Item, before: Item | None) -> bool:
        """Hold an object; return whether its meaning is the same as before: then the old value stays."""
        before = before or _NOTHING
        same = (item.value, item.unreadable) == (before.value, before.unreadable)
        self._items[key] = Item(item.version, before.value, before.unreadable) if same else item
        return same

    def _show(self, changed: Mapping[Key, Item | None]) -> bool:
        """Apply the changes to the published values; return whether that changed them."""
        counts = len(self._values), len(self._unreadable)
        items = {key: item or _NOTHING for key, item in changed.items()}
        self._values.update({key: _rows(item.value) for key, item in items.items()})
        self._unreadable.update({key: _rows(item.unreadable) for key, item in items.items()})
        means = any(item.value is not None or item.unreadable is not None for item in items.values())
        return means or counts != (len(self._values), len(self._unreadable))


_Value = TypeVar("_Value")
_NOTHING = Item(0)


def _rows(value: _Value | None) -> tuple[_Value, ...]:
    return () if value is None else (value,)
