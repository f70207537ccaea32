"""What differs between two values of which nearly all is the same. Pure.

Objects are compared by identity first, so that this costs nanoseconds for each object that stays. Whatever
keeps objects from one pass to the next finds what to work on by it: the planner, the log, Events, metrics.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import eq, is_, is_not
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_FEW = 8


def identical(here: Sequence[object], there: Sequence[object]) -> bool:
    """Return whether two sequences of one length are of the same objects."""
    return all(map(is_, here, there))


def difference(
    before: Sequence[_Value],
    after: Sequence[_Value],
    key: Callable[[_Value], Any],
    same: Callable[[Sequence[_Value], Sequence[_Value]], bool] = eq,
) -> tuple[list[_Value], list[_Value]]:
    """Return what to take from `before` and what to add so that the values of `after` are left.

    Right for any two sequences: a value is in both results if it moved, or sits beside a change. Few are if
    both are sorted by `key`.

    Args:
        before: values, as a tuple or a list.
        after: values, as the same.
        key: what they are sorted by.
        same: compares parts of one length; `identical` lets no value take the place of an equal one.
    """
    removed: list[_Value] = []
    added: list[_Value] = []
    parts = [(0, len(before), 0, len(after))] if before is not after else []
    while parts:
        first, end, other, other_end = parts.pop()
        here, there = before[first:end], after[other:other_end]
        if len(here) == len(there) and same(here, there):
            continue
        if len(here) <= _FEW or not there:
            removed += here
            added += there
            continue
        middle = (first + end) // 2
        split = bisect_left(after, key(before[middle]), other, other_end, key=key)
        parts += ((middle, end, split, other_end), (first, middle, other, split))
    return removed, added


def changed_keys(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """Return the keys of which one mapping has another object than the other, or none."""
    if before is after:
        return set()
    changed = set(compress(after, map(is_not, after.values(), map(before.get, after))))
    return changed | (before.keys() - after.keys())
