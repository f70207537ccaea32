"""A class or a module has a name of its own: a reader who meets it knows which one is meant."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "nodeagent"

# The same part of a component has the same name in each.
SHAPES = {"__init__", "component", "state", "errors"}

# A watcher is named like what it watches, a command's file like the command.
NAMED_AFTER = {"agent/drift", "cli"}

# These decode or encode a schema, whose words are its own.
OTHERS_NAMES = {"sources/objects/api.py", "fleet/roster.py"}


def _modules() -> Iterator[Path]:
    return (
        path
        for path in PACKAGE.rglob("*.py")
        if path.stem not in SHAPES and str(path.parent.relative_to(PACKAGE)) not in NAMED_AFTER
    )


def _repeated(names: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for name, place in names:
        places[name].append(place)
    return {name: sorted(found) for name, found in places.items() if len(found) > 1}


def _classes() -> Iterator[tuple[str, str]]:
    for path in PACKAGE.rglob("*.py"):
        place = str(path.relative_to(PACKAGE))
        if place not in OTHERS_NAMES:
            for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text("utf-8"), re.MULTILINE):
                yield name, place


def test_no_class_name_is_used_twice() -> None:
    assert _repeated(_classes()) == {}


def test_no_module_name_is_used_twice() -> None:
    assert _repeated((path.stem, str(path.relative_to(PACKAGE))) for path in _modules()) == {}
