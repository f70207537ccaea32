"""Objects from YAML and JSON files."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from .resources import Object

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def objects_in(text: str) -> Iterator[Object]:
    """Give the objects of a YAML text, those inside of Lists too."""
    for document in yaml.safe_load_all(text):
        if not document:
            continue
        if document["kind"] == "List":
            yield from document["items"]
        else:
            yield document


def objects_under(path: Path) -> Iterator[Object]:
    """Give the objects of a file, or of all YAML and JSON files under a directory, in the order of names."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
    for file in files:
        yield from objects_in(file.read_text(encoding="utf-8"))
