"""The cost of a pass depends on what changed, not on what exists: differences, and sorted rows. Pure.

An object is equal to itself without a look into it, so this costs nanoseconds for each object that stays. The
planner, the log, Events and metrics, which keep objects from one pass to the next, use it to find what
changed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain, compress
from operator import is_not, itemgetter
from typing import Any, Generic, Protocol, Self, TypeVar

_Value = TypeVar("_Value")
_FEW = 8


def difference(
    before: Sequence[_Value], after: Sequence[_Value], key: Callable[[_Value], Any]
) -> tuple[list[_Value], list[_Value]]:
    """Return what to remove from `before` and what to add to get the values of `after`.

    Correct for any two sequences: a value is in both results if it moved, or is next to a change. Few are if
    both are sorted by `key`. Between rows of `SortedRows` and those before them, nothing is compared.

    Args:
        before: values, as a tuple or a list.
        after: values, as the same.
        key: the sort key.
    """
    if isinstance(after, _Rows) and isinstance(before, _Rows) and after.since is before.mark:
        return after.removed, after.added
    removed: list[_Value] = []
    added: list[_Value] = []

    def compare(first: int, end: int, other: int, other_end: int, *, differ: bool = False) -> bool:
        """Record the differences of two parts, which may be known to `differ`; return if there are any."""
        as_long = end - first == other_end - other
        if as_long and not differ and before[first:end] == after[other:other_end]:
            return False
        if end - first <= _FEW or other == other_end:
            removed.extend(before[first:end])
            added.extend(after[other:other_end])
            return True
        middle = (first + end) // 2
        split = bisect_left(after, key(before[middle]), other, other_end, key=key)
        halves = as_long and middle - first == split - other
        differs = compare(first, middle, other, split)
        compare(middle, end, split, other_end, differ=halves and not differs)
        return True

    if before is not after:
        compare(0, len(before), 0, len(after))
    return removed, added


def changed_keys(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """Return the keys of which one mapping has another object than the other, or none."""
    if before is after:
        return set()
    changed = set(compress(after, map(is_not, after.values(), map(before.get, after))))
    return changed | (before.keys() - after.keys())


_Item = TypeVar("_Item", bound=Hashable)
_Result = TypeVar("_Result")


class ItemResults(Generic[_Item, _Result]):
    """The results of a function for each item of a sequence, worked out once while the item stays.

    Each item is in the sequence once.

    Args:
        key: the sort key of the items.
    """

    def __init__(self, key: Callable[[_Item], Any]) -> None:
        self._key = key
        self._items: Sequence[_Item] = ()
        self._results: dict[_Item, _Result] = {}

    def update(
        self, items: Sequence[_Item], work_out: Callable[[_Item], _Result], again: Iterable[_Item] = ()
    ) -> tuple[list[_Result], list[_Result]]:
        """Take over the items; return the results that are gone and those that are new.

        A result that equals one before for an item with the same key stays the same object.

        Args:
            items: as they are now.
            work_out: the function.
            again: those of them whose result may have changed.
        """
        removed, added = difference(self._items, items, self._key)
        again = tuple(again)
        gone: dict[Any, list[_Result]] = {}
        for item in chain(removed, again):
            if item in self._results:
                gone.setdefault(self._key(item), []).append(self._results.pop(item))
        self._items = items
        new: list[_Result] = []
        for item in chain(added, again):
            if item in self._results:
                continue
            result = work_out(item)
            before = gone.get(self._key(item), [])
            if result in before:
                result = before.pop(before.index(result))
            else:
                new.append(result)
            self._results[item] = result
        return [result for each in gone.values() for result in each], new


class _Orderable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...  # noqa: ANN401 - as typeshed says it


_Key = TypeVar("_Key", bound=_Orderable)
_Row = TypeVar("_Row")

_MANY = 16
"""If at least one key in this many changed, all rows are sorted again: finding each place is slower then."""


class _Rows(tuple[_Row, ...]):  # noqa: SLOT001 - a tuple can have none
    """Rows, and what distinguishes them from those before them, which are known by their mark.

    Attributes:
        mark: of these rows; no others have it.
        since: the mark of those before them; None if the differences are not known.
        removed: what they no longer have.
        added: what they have in its place.
    """

    mark: object
    since: object
    removed: list[_Row]
    added: list[_Row]


class SortedRows(Generic[_Key, _Row]):
    """Any number of rows for each key."""

    def __init__(self) -> None:
        self._keys: list[_Key] = []
        self._rows: list[_Row] = []
        self._tuple: _Rows[_Row] | None = None
        # The mark of the rows returned last, and the rows of each key that has changed since, as they were.
        self._mark: object = None
        self._before: dict[_Key, list[_Row]] = {}

    def update(self, changed: Mapping[_Key, Iterable[_Row]]) -> Self:
        """Replace the rows of each of these keys."""
        if not changed:
            return self
        self._tuple = None
        if len(changed) * _MANY > len(self._keys):
            pairs = [pair for pair in zip(self._keys, self._rows, strict=True) if pair[0] not in changed]
            pairs += [(key, row) for key, rows in changed.items() for row in rows]
            pairs.sort(key=itemgetter(0))
            self._keys = [key for key, _ in pairs]
            self._rows = [row for _, row in pairs]
            self._mark, self._before = None, {}
            return self
        for key, rows in changed.items():
            first, end = self._place(key)
            if self._mark is not None:
                self._before.setdefault(key, self._rows[first:end])
            self._rows[first:end] = rows
            self._keys[first:end] = [key] * (len(self._rows) - len(self._keys) + end - first)
        if len(self._before) * _MANY > len(self._keys):
            self._mark, self._before = None, {}
        return self

    def rows(self) -> tuple[_Row, ...]:
        """Return all rows; the same object until something changes."""
        if self._tuple is None:
            rows = self._tuple = _Rows(self._rows)
            rows.mark, rows.since = object(), self._mark
            rows.removed = [row for each in self._before.values() for row in each]
            rows.added = [row for key in self._before for row in self._rows[slice(*self._place(key))]]
            self._mark, self._before = rows.mark, {}
        return self._tuple

    def _place(self, key: _Key) -> tuple[int, int]:
        """Return where the rows of a key begin and end."""
        return bisect_left(self._keys, key), bisect_right(self._keys, key)

    def joined(self, join: Callable[[Iterable[_Row]], _Row]) -> _Row:
        """Return the result of a function for all rows."""
        return join(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
