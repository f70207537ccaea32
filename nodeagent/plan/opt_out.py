"""Whether the owner of an object asks that it be left alone."""

from collections.abc import Mapping

from nodeagent.model.objects import EXCLUDE
from nodeagent.plan.go_values import parse_bool


def opt_out(annotations: Mapping[str, str]) -> str | None:
    """Why an object with these annotations is left alone; None if they don't ask for it.

    A value that is no boolean excludes, too: whoever wrote it wanted something else than the usual.
    """
    value = annotations.get(EXCLUDE)
    if value is None:
        return None
    try:
        return f"annotation {EXCLUDE}: {value}" if parse_bool(value) else None
    except ValueError as error:
        return f"ignored, because its annotation {EXCLUDE} can't be parsed: {error}"
