"""What pure functions returned before: nothing is decided again while what it depends on stays the same."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import accumulate, compress
from operator import is_not
from typing import Any, Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Result = TypeVar("_Result")
_Item = TypeVar("_Item")


class Changed(dict[_Key, _Result]):
    """A mapping that never changes, made of another one, and the keys for which it differs from that."""

    def __init__(
        self, before: Mapping[_Key, _Result], computed: Mapping[_Key, _Result], gone: Iterable[_Key] = ()
    ) -> None:
        super().__init__(before)
        self.update(computed)
        for key in gone:
            del self[key]
        self.keys_of_change = {*computed, *gone}
        # Not the other one itself, which would keep all that were before it.
        self.mark = object()
        self.follows = before.mark if isinstance(before, Changed) else None


def changed_keys(before: Mapping[_Key, object], after: Mapping[_Key, object]) -> AbstractSet[_Key]:
    """Return the keys for which two mappings have different values, or of which one has none.

    Most values are the same objects: those are not looked into. None may be None.
    """
    if before is after:
        return set()
    if not before:  # in their order, as they lie in memory
        return after.keys()
    if isinstance(before, Changed) and isinstance(after, Changed) and after.follows is before.mark:
        return after.keys_of_change
    candidates = [*compress(after, map(is_not, after.values(), map(before.get, after)))]
    changed = {key for key in candidates if key not in before or before[key] != after[key]}
    new = sum(key not in before for key in candidates)
    return changed if len(before) + new == len(after) else changed | (before.keys() - after.keys())


class Memory(Generic[_Key, _Result]):
    """Remembers the results of a pure function for many keys, each with the values that it was called with.

    What stays costs a comparison by identity. A result that equals the one before it stays the same object:
    what is computed from it is not computed again, either.
    """

    def __init__(self) -> None:
        self._parts: tuple[Mapping[_Key, object], ...] = ()
        self._context: object = None
        self._results: Mapping[_Key, _Result] = {}

    def results(
        self, function: Callable[..., _Result], *parts: Mapping[_Key, object], context: object = None
    ) -> Mapping[_Key, _Result]:
        """Return the function's result for each key of the first part; the same object if none changed.

        It is called with a key and its value in each part. `context` is whatever else it depends on.
        """
        keyed, known = parts[0], self._results
        if self._parts and context == self._context:
            stale: Iterable[_Key] = set[_Key]().union(*map(changed_keys, self._parts, parts))
        else:
            stale = [*keyed, *(known.keys() - keyed.keys())]
        computed: dict[_Key, _Result] = {}
        wanted = [*filter(keyed.__contains__, stale)]
        for key, *values in zip(wanted, *(map(part.get, wanted) for part in parts), strict=True):
            result = function(key, *values)
            if key not in known or known[key] != result:
                computed[key] = result
        gone = [key for key in stale if key in known and key not in keyed]
        if gone or computed:
            self._results = Changed(known, computed, gone)
        self._parts, self._context = parts, context
        return self._results


class Quota(Generic[_Key, _Item]):
    """Each namespace has a share: an item is left out if those of it that come before weigh as much, or more.

    `order` returns what sorts the items, the first one first, before their keys; of the item alone.
    """

    def __init__(self, share: int, order: Callable[[_Item], Any]) -> None:
        self.share = share
        self._order = order
        self._left_out: Memory[str, tuple[_Key, ...]] = Memory()

    def left_out(self, items: Iterable[tuple[str, _Key, _Item, int]]) -> Mapping[_Key, frozenset[str]]:
        """Return the keys of what is left out, each with the namespaces that have too many.

        Of each item, its namespace, key and weight are given.
        """
        groups: dict[str, dict[_Key, tuple[_Item, int]]] = {}
        for namespace, key, item, weight in items:
            groups.setdefault(namespace, {})[key] = (item, weight)
        too_many = {
            namespace: group
            for namespace, group in groups.items()
            if sum(weight for _, weight in group.values()) > self.share
        }
        left_out: dict[_Key, frozenset[str]] = {}
        for namespace, keys in self._left_out.results(self._beyond, too_many).items():
            for key in keys:
                left_out[key] = left_out.get(key, frozenset()) | {namespace}
        return left_out

    def _beyond(self, _: str, group: Mapping[_Key, tuple[_Item, int]]) -> tuple[_Key, ...]:
        in_order = sorted(group, key=lambda key: (self._order(group[key][0]), key))
        before = accumulate((group[key][1] for key in in_order), initial=0)
        return tuple(key for key, taken in zip(in_order, before, strict=False) if taken >= self.share)
