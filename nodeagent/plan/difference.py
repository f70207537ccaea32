"""What differs between two values of which nearly all is the same. Pure.

Objects are compared by identity, so that this costs nanoseconds for each object that stays. Whatever keeps
objects from one pass to the next finds what to work on by it: the planner, the log, Events, metrics.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from operator import is_, is_not
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_FEW = 8


def difference(
    before: Sequence[_Value], after: Sequence[_Value], key: Callable[[_Value], Any]
) -> tuple[list[_Value], list[_Value]]:
    """Return what to take from `before` and what to add so that the objects of `after` are left.

    Right for any two sequences: an object is in both results if it moved, or sits beside a change. Few are
    if both are sorted by `key`.
    """
    removed: list[_Value] = []
    added: list[_Value] = []
    parts = [(0, len(before), 0, len(after))] if before is not after else []
    while parts:
        first, end, other, other_end = parts.pop()
        here, there = before[first:end], after[other:other_end]
        if len(here) == len(there) and all(map(is_, here, there)):
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
