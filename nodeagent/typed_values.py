"""Values of a declared type, from JSON or from plain dicts and lists: all decoding is done here.

msgspec (0.22) works out how to read a Struct when the type is first used. A thread that decodes the same type
at that moment follows a null pointer (SIGSEGV in `json_decode_struct_map`): agents died of it at their start,
when all collections are listed at once. So a type is prepared by one thread, and used only when it is ready.
"""

import re
from collections.abc import Callable, Hashable
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

import msgspec

from nodeagent.errors import quoted

_Value = TypeVar("_Value")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_preparing = Lock()


def from_json(text: bytes | bytearray | str | msgspec.Raw, expected: type[_Value]) -> _Value:
    """Return the value that a JSON text holds.

    Raises msgspec.MsgspecError, which says where, or RecursionError: it is nested too deeply.
    """
    decoded: _Value = _decoder(expected).decode(text)
    return decoded


def from_plain(
    value: Any,  # noqa: ANN401 - what YAML and JSON can hold
    expected: type[_Value],
    dec_hook: Callable[[type, Any], Any] | None = None,
) -> _Value:
    """Return the value that dicts, lists and scalars hold, as `from_json`; `dec_hook` makes other types."""
    _decoder(expected)
    return msgspec.convert(value, expected, dec_hook=dec_hook)


_EXPECTED = re.compile(r"Expected `([^`]+)`([^,`]*)(?:, got `([^`]+)`)?")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}


def plain_words(error: Exception) -> str:
    """Return what `from_json` and `from_plain` raised, without names of types that only a program knows."""

    def kinds(names: str) -> str:
        types = [_KINDS.get(name, name) for name in names.split(" | ") if names == "null" or name != "null"]
        return " or ".join(types)

    def expected(match: re.Match[str]) -> str:
        actual = f", not {kinds(match[3])}" if match[3] else ""
        return f"must be {kinds(match[1])}{match[2]}{actual}"

    words = _MISSING.sub(r"\1 is missing", _EXPECTED.sub(expected, str(error)))
    words = words.replace("a whole number, not a number", "a whole number of at most 18 digits")
    words = words.removeprefix("JSON is malformed: ").replace("Input data was truncated", "it ends too early")
    place = _PLACE.search(words)
    words = _PLACE.sub("", words)
    return f"{place[1]}: {words}" if place and place[1] else words


TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
"""What Go's strconv.ParseBool takes for true."""


def parse_bool(text: str) -> bool:
    """Return what Go's strconv.ParseBool makes of `text`. Raises ValueError, also for `yes` and `on`."""
    if text in TRUE or text in {"0", "f", "F", "FALSE", "false", "False"}:
        return text in TRUE
    raise ValueError(f"{quoted(text)} is neither true nor false")


def _decoder(expected: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - types, and `list[...]` of them
    decoder = _decoders.get(expected)
    if decoder is None:
        with _preparing:
            decoder = _decoders.setdefault(expected, msgspec.json.Decoder(expected))
    return decoder


_Equal = TypeVar("_Equal", bound=Hashable)


def intern(value: _Equal) -> _Equal:
    """Return one object in place of thousands that are equal, such as the namespace of each Ingress.

    Only the latest values are known.
    """
    first: _Equal = _first(value)
    return first


@lru_cache(256, typed=True)
def _first(value: _Equal) -> _Equal:
    return value
