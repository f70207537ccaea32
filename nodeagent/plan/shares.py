"""Which of many come first, as many as the share of their namespace allows."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from nodeagent.plan.memory import Memory

_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")


class Shares(Generic[_Key, _Item]):
    """Each namespace has a share of its own, and the first of its items get it.

    An item is left out if those of its namespace before it weigh as much as the share, or more.

    Attributes:
        share: of each namespace.

    Args:
        order: returns what sorts the items, the first one first; it depends on the item and its key alone.
    """

    def __init__(self, share: int, order: Callable[[_Key, _Item], Any]) -> None:
        self.share = share
        self._order = order
        self._left_out: Memory[str, frozenset[_Key]] = Memory()

    def left_out(
        self, totals: Mapping[str, int], items: Iterable[tuple[str, _Key, _Item, int]]
    ) -> Mapping[str, frozenset[_Key]]:
        """Return the keys of what is left out, of each namespace that has too many.

        Args:
            totals: what the items of each namespace weigh.
            items: the namespace, key and weight of each; not looked at if no namespace has too many.
        """
        groups: dict[str, dict[_Key, tuple[_Item, int]]]
        groups = {namespace: {} for namespace, total in totals.items() if total > self.share}
        for namespace, key, item, weight in items if groups else ():
            if namespace in groups:
                groups[namespace][key] = (item, weight)
        left_out = self._left_out.results(self._beyond, groups)
        return {namespace: keys for namespace, keys in left_out.items() if keys}

    def _beyond(self, _: str, group: Mapping[_Key, tuple[_Item, int]]) -> frozenset[_Key]:
        taken = 0
        left_out: list[_Key] = []
        for key in sorted(group, key=lambda key: (self._order(key, group[key][0]), key)):
            if taken < self.share:
                taken += group[key][1]
            else:
                left_out.append(key)
        return frozenset(left_out)
