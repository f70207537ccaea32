"""Rows in the order of their keys, of which a few change at a time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar


class _Orderable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...  # noqa: ANN401 - as typeshed says it


_Key = TypeVar("_Key", bound=_Orderable)
_Row = TypeVar("_Row")

_MANY = 16
"""From one key in so many on, all rows are sorted again: to find one's place is slower by then."""


class SortedRows(Generic[_Key, _Row]):
    """Any number of rows for each key."""

    def __init__(self) -> None:
        self._keys: list[_Key] = []
        self._rows: list[_Row] = []
        self._tuple: tuple[_Row, ...] | None = ()

    def update(self, changed: Mapping[_Key, Iterable[_Row]]) -> Self:
        """Replace the rows of each of these keys."""
        if not changed:
            return self
        if len(changed) * _MANY > len(self._keys):
            self._rebuild(changed)
        else:
            for key, rows in changed.items():
                first, end = bisect_left(self._keys, key), bisect_right(self._keys, key)
                self._rows[first:end] = rows
                self._keys[first:end] = [key] * (len(self._rows) - len(self._keys) + end - first)
        self._tuple = None
        return self

    def rows(self) -> tuple[_Row, ...]:
        """Return all rows; the same object until something changes."""
        if self._tuple is None:
            self._tuple = tuple(self._rows)
        return self._tuple

    def keys(self, first: _Key, end: _Key) -> list[_Key]:
        """Return the keys that have rows, from `first` on and before `end`."""
        return self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, end)]

    def __len__(self) -> int:
        return len(self._rows)

    def _rebuild(self, changed: Mapping[_Key, Iterable[_Row]]) -> None:
        staying = [(key, row) for key, row in zip(self._keys, self._rows, strict=True) if key not in changed]
        pairs = [*staying, *((key, row) for key, rows in changed.items() for row in rows)]
        pairs.sort(key=_first)
        self._keys = [key for key, _ in pairs]
        self._rows = [row for _, row in pairs]


def _first(pair: tuple[_Key, _Row]) -> _Key:
    return pair[0]
