"""Which of many come first, as many as a limit allows: kept from one pass to the next."""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from nodeagent.model.objects import ObjectRef

_Key = TypeVar("_Key", str, int, ObjectRef)
_Item = TypeVar("_Item")


class Shares(Generic[_Key, _Item]):
    """Groups of items; each group has a share of its own, and the first of its items get it.

    An item is left out if those of its group before it weigh as much as the share, or more. A group is sorted
    only if it has too many.

    Args:
        most: the share.
        order: what sorts the items of a group; it depends on the item and its key alone.
        weight: what an item takes of the share.
    """

    def __init__(
        self, most: int, order: Callable[[_Key, _Item], Any], weight: Callable[[_Item], int] = lambda _: 1
    ) -> None:
        self._most = most
        self._order: Callable[[_Key, _Item], Any] = order
        self._weight: Callable[[_Item], int] = weight
        self._groups: dict[str, _Group[_Key, _Item]] = {}
        self._touched: set[str] = set()

    def put(self, group: str, key: _Key, item: _Item) -> None:
        """Add an item, or put it in the place of the one that has its key."""
        members = self._groups.setdefault(group, _Group())
        if members.items.get(key) is not item:
            self.remove(group, key)
            self._touched.add(group)
            members.items[key] = item
            members.weight += self._weight(item)
            if members.queue is not None:
                insort(members.queue, (self._order(key, item), key))

    def remove(self, group: str, key: _Key) -> None:
        """Remove an item, if it is there."""
        members = self._groups.get(group)
        item = members.items.pop(key, None) if members else None
        if members is None or item is None:
            return
        self._touched.add(group)
        members.weight -= self._weight(item)
        if members.queue is not None:
            del members.queue[bisect_left(members.queue, (self._order(key, item), key))]

    def settle(self) -> set[tuple[str, _Key]]:
        """Work out which items are left out; return those for which that changed, with their groups."""
        changed: set[tuple[str, _Key]] = set()
        for group in self._touched:
            members = self._groups[group]
            before, members.left_out = members.left_out, self._beyond(members)
            changed.update((group, key) for key in before.keys() ^ members.left_out.keys())
            if not members.items:
                del self._groups[group]
        self._touched.clear()
        return changed

    def left_out(self, group: str) -> Mapping[_Key, _Item]:
        """Return the items of a group that are left out, by the last `settle`."""
        members = self._groups.get(group)
        return members.left_out if members else {}

    def all_left_out(self) -> dict[_Key, _Item]:
        """Return what is left out of all groups."""
        return {key: item for one in self._groups.values() for key, item in one.left_out.items()}

    def counts_left_out(self) -> dict[str, int]:
        """Return how many items of each group are left out, if any are."""
        return {group: len(one.left_out) for group, one in self._groups.items() if one.left_out}

    def _beyond(self, members: "_Group[_Key, _Item]") -> dict[_Key, _Item]:
        if members.weight <= self._most:
            members.queue = None
            return {}
        if members.queue is None:
            members.queue = sorted((self._order(key, item), key) for key, item in members.items.items())
        given = first = 0
        while given < self._most:
            given += self._weight(members.items[members.queue[first][1]])
            first += 1
        return {key: members.items[key] for _, key in members.queue[first:]}


class _Group(Generic[_Key, _Item]):
    """The items of one group; `queue` has their keys in order, once there were too many."""

    __slots__ = ("items", "left_out", "queue", "weight")

    def __init__(self) -> None:
        self.items: dict[_Key, _Item] = {}
        self.weight = 0
        self.queue: list[tuple[Any, _Key]] | None = None
        self.left_out: dict[_Key, _Item] = {}
