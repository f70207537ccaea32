"""One object in place of thousands that are equal, such as the namespace of each Ingress."""

from collections.abc import Hashable
from functools import lru_cache
from typing import TypeVar

_Value = TypeVar("_Value", bound=Hashable)

_LATEST = 256


def intern(value: _Value) -> _Value:
    """Return the object that was met first of those that equal this value, or the value itself.

    The values that were met last are known, so that none is kept for ever. Two equal values may therefore
    still be two objects: nothing but memory may rest on it.
    """
    first: _Value = _first(value)
    return first


@lru_cache(_LATEST, typed=True)
def _first(value: _Value) -> _Value:
    return value
