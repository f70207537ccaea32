"""Values as programs written in Go read them: the providers' controllers do."""

from nodeagent.errors import quoted

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def parse_bool(text: str) -> bool:
    """The boolean that Go's strconv.ParseBool makes of `text`. Raises ValueError for what it refuses.

    So `yes`, `on`, `tRUE` and anything with a space around it are errors, not false.
    """
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{quoted(text)} is neither true nor false")
