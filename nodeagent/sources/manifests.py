"""A Snapshot from manifests on disk: multi-document YAML and JSON, `kind: List` too. No cluster needed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from nodeagent.errors import SourceError
from nodeagent.model.objects import Ingress, Node, ObjectRef, Service, Snapshot, Unreadable
from nodeagent.sources.decoding import (
    DecodingError,
    decode_ingress,
    decode_node,
    decode_service,
    describe,
)

_Key = TypeVar("_Key")
_Object = TypeVar("_Object")

_SUFFIXES = {".yaml", ".yml", ".json"}
_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)


class _JsonTypesLoader(yaml.CSafeLoader):
    """Reads YAML as the API server does: a date stays the text that was written."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class declares it so
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass
class _Gathered:
    services: dict[ObjectRef, Service] = field(default_factory=dict)
    ingresses: dict[ObjectRef, Ingress] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)


def read_manifests(directory: Path, node_name: str) -> Snapshot:
    """Reads the manifests in `directory` (not below it, as kubectl does), or one file of that name.

    `node_name` says which Node object is this node's. What can't be read is named in the Snapshot's
    `unreadable`, the rest is used. Raises SourceError when there is nothing to read at all.
    """
    gathered = _Gathered()
    for file in _files(directory):
        for where, document in _documents(file, gathered.unreadable):
            _gather(document, where, gathered)
    return Snapshot(
        services=tuple(gathered.services.values()),
        ingresses=tuple(gathered.ingresses.values()),
        node=gathered.nodes.get(node_name),
        unreadable=tuple(gathered.unreadable),
    )


def _files(directory: Path) -> list[Path]:
    if directory.is_file():
        return [directory]
    try:
        found = sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    except OSError as error:
        raise SourceError(f"{directory}: can't be read: {error.strerror}; nothing was changed") from error
    if not found:
        raise SourceError(f"{directory}: holds no .yaml, .yml or .json file; nothing was changed")
    return found


def _documents(file: Path, unreadable: list[Unreadable]) -> Iterator[tuple[str, Any]]:
    """Yields (file:line, document); a document that can't be parsed goes to `unreadable`, alone."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        unreadable.append(Unreadable(str(file), f"can't be read: {error}"))
        return
    if text.lstrip().startswith(("{", "[")):
        try:
            yield f"{file}:1", msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            unreadable.append(Unreadable(str(file), f"not JSON: {error}"))
        return
    for line, part in _split(text):
        try:
            document = yaml.load(part, Loader=_JsonTypesLoader)  # noqa: S506 - a safe loader
        except yaml.MarkedYAMLError as error:
            at = line + (error.problem_mark.line if error.problem_mark else 0)
            unreadable.append(Unreadable(f"{file}:{at}", f"not YAML: {error.problem}"))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            unreadable.append(Unreadable(f"{file}:{line}", f"not YAML: {error}"))
        else:
            if document is not None:
                yield f"{file}:{line}", document


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yields (number of its first line, text) of each document, so that a broken one hides no other."""
    start = 0
    for separator in _SEPARATOR.finditer(text):
        yield text.count("\n", 0, start) + 1, text[start : separator.start()]
        start = separator.end()
    yield text.count("\n", 0, start) + 1, text[start:]


def _gather(document: Any, where: str, gathered: _Gathered) -> None:  # noqa: ANN401 - any YAML value
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        gathered.unreadable.append(Unreadable(where, "not an API object: it has no kind"))
        return
    kind: str = document["kind"]
    if kind == "List" or (kind.endswith("List") and isinstance(document.get("items"), list)):
        items = document.get("items")
        for index, item in enumerate(items if isinstance(items, list) else []):
            if isinstance(item, dict):
                item.setdefault("kind", kind.removesuffix("List"))
            _gather(item, f"{where}: items[{index}]", gathered)
        return
    try:
        _decode(kind, document, gathered)
    except DecodingError as error:
        gathered.unreadable.append(Unreadable(f"{where}: {describe(document, kind)}", str(error)))


def _decode(kind: str, document: dict[str, Any], gathered: _Gathered) -> None:
    if kind == "Service":
        service = decode_service(document)
        if service is not None:
            _add(gathered.services, service.ref, service)
    elif kind == "Ingress":
        ingress = decode_ingress(document)
        _add(gathered.ingresses, ingress.ref, ingress)
    elif kind == "Node":
        node = decode_node(document)
        _add(gathered.nodes, node.name, node)


def _add(objects: dict[_Key, _Object], key: _Key, found: _Object) -> None:
    if objects.setdefault(key, found) is not found:
        raise DecodingError("given twice; the first one is used")
