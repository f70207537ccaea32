"""Values of a declared type, from JSON or from plain dicts and lists: all decoding of the agent is done here.

And one object in place of thousands that are equal, such as the namespace of each Ingress (`intern`).

msgspec (0.22) works out how to read a Struct when the type is first used, and other threads see what is ready
of that. One that decodes the same type at that moment follows a null pointer, and the process ends: SIGSEGV
in `json_decode_struct_map`. Agents died of it at their start, when all collections are listed at once. So a
type is prepared by one thread at a time, and used only when it is ready.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

import msgspec

_Value = TypeVar("_Value")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_preparing = Lock()


def from_json(text: bytes | bytearray | str | msgspec.Raw, expected: type[_Value]) -> _Value:
    """Return the value that a JSON text holds. May be called from any thread.

    Raises:
        msgspec.MsgspecError: it is no JSON, or not of the type; the text says where.
        RecursionError: it is nested too deeply.
    """
    found: _Value = _decoder(expected).decode(text)
    return found


def from_plain(
    value: Any,  # noqa: ANN401 - what YAML and JSON can hold
    expected: type[_Value],
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> _Value:
    """Return the value that dicts, lists and scalars hold; `dec_hook` makes those of other types.

    May be called from any thread.

    Raises:
        msgspec.MsgspecError: it is not of the type; the text says where.
        RecursionError: it is nested too deeply.
    """
    _decoder(expected)
    return msgspec.convert(value, expected, dec_hook=dec_hook)


def _decoder(expected: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - types, and `list[...]` of them
    found = _decoders.get(expected)
    if found is None:
        with _preparing:
            found = _decoders.setdefault(expected, msgspec.json.Decoder(expected))
    return found


_Equal = TypeVar("_Equal", bound=Hashable)


def intern(value: _Equal) -> _Equal:
    """Return the object that was met first of those that equal this value, or the value itself.

    The values that were met last are known, so that none is kept for ever. Two equal values may therefore
    still be two objects: nothing but memory may rest on it.
    """
    first: _Equal = _first(value)
    return first


@lru_cache(256, typed=True)
def _first(value: _Equal) -> _Equal:
    return value
