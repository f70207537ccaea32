"""Whether the owner of an object excludes it; and booleans of annotations as Go reads them."""

from collections.abc import Mapping

from nodeagent.errors import quoted
from nodeagent.model.objects import EXCLUDE

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def parse_bool(text: str) -> bool:
    """Return the boolean that Go's strconv.ParseBool makes of `text`. Raises ValueError for what it rejects.

    So `yes`, `on`, `tRUE` and anything with a space around it are errors, not false.
    """
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{quoted(text)} is neither true nor false")


def opt_out(annotations: Mapping[str, str]) -> str | None:
    """Why an object with these annotations is excluded; None if it is not.

    A value that is not a boolean excludes, too: its author wanted something other than the default.
    """
    value = annotations.get(EXCLUDE)
    if value is None:
        return None
    try:
        return f"annotation {EXCLUDE}: {value}" if parse_bool(value) else None
    except ValueError as error:
        return f"ignored, because its annotation {EXCLUDE} can't be parsed: {error}"
