"""Objects from YAML and JSON files."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import yaml

from .resources import Object

_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


def objects_under(path: Path) -> Iterator[Object]:
    """Give the objects of a file, or of all YAML and JSON files under a directory, in the order of names."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
    texts = (file.read_text("utf-8-sig") for file in files)
    for document in chain.from_iterable(yaml.load_all(text, Loader=yaml.CSafeLoader) for text in texts):
        if document:
            yield from document["items"] if document["kind"] == "List" else [document]
