"""A Snapshot from manifests: YAML of several documents, JSON, lists. It needs no cluster."""

import re
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from nodeagent.errors import SourceError, one_line, printable
from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import Snapshot, Unreadable
from nodeagent.sources.kubernetes import resources
from nodeagent.sources.objects import api
from nodeagent.sources.objects.decoding import decode_relay_service, describe
from nodeagent.sources.objects.kinds import OPTIONAL_KINDS
from nodeagent.typed_values import plain_words
from nodeagent.yaml_loader import load, yaml_problem

_SUFFIXES = {".yaml", ".yml", ".json"}
_LARGEST_FILE = 64 * 1024 * 1024
"""Bytes of a file that are read into memory: 50,000 Ingresses."""
_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
# What may precede the first separator of a file: directives (%YAML), comments, nothing.
_DIRECTIVES = re.compile(r"(?:[ \t]*(?:[%#].*)?(?:\n|$))*")
_OF_ANY_NODE = (resources.NODE_ADDRESSES, resources.EXTERNAL_IPS, resources.NAMESPACES)
_OPTIONAL = tuple(resources.optional_resource(kind, kind.versions[0]) for kind in OPTIONAL_KINDS)


@dataclass
class _Gathered:
    rows: tuple[resources.Resource, ...]
    objects_seen: int = 0
    objects: dict[Hashable, object] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    cluster_ips: set[IPAddress] = field(default_factory=set)

    def reject(self, where: str, why: str, *, decisive: bool = True) -> None:
        self.unreadable.append(Unreadable(where, why, decisive=decisive))


def read_standard_input() -> bytes:
    """Return the manifests on standard input, and at most one byte more than is used of them."""
    return sys.stdin.buffer.read(_LARGEST_FILE + 1)


def read_manifests(source: Path | bytes, node_name: str, relay: tuple[str, str] | None = None) -> Snapshot:
    """Read the manifests in the directory `source` (not below it, as kubectl does), one file, or a text.

    `node_name` says which Node object is this node's, `relay` (namespace, name) which Service is an existing
    relay. What can't be read is `unreadable`. Raises SourceError if there is nothing to read at all.
    """
    gathered = _Gathered((*resources.watched(node_name, relay), *_OF_ANY_NODE, *_OPTIONAL))
    texts = _texts(source, gathered) if isinstance(source, Path) else [("standard input", source)]
    for shown, text in texts:
        for where, document in _documents(shown, text, gathered):
            _gather(document, where, gathered)
    if not gathered.objects_seen and not gathered.unreadable:
        # Written by what failed, or had no rights. Taken for an empty cluster, it would remove everything.
        shown = str(source) if isinstance(source, Path) else "standard input"
        raise SourceError(f"{shown}: 0 Services, 0 Nodes read; nothing was changed. Pass a complete export")
    collections = ((value,) for value in gathered.objects.values() if value is not None)
    snapshot = resources.assembled((*collections, tuple(gathered.unreadable)))
    return replace(snapshot, other_cluster_ips=frozenset(gathered.cluster_ips))


def _texts(source: Path, gathered: _Gathered) -> Iterator[tuple[str, bytes]]:
    """Yield each file's name and text."""
    try:
        files = sorted(path for path in source.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    except NotADirectoryError:
        files = [source]
    except OSError as error:
        raise SourceError(
            f"{source}: can't be read: {error.strerror}; nothing was changed. Check --manifests"
        ) from error
    if not files:
        raise SourceError(
            f"{source}: no .yaml, .yml or .json file is in it; nothing was changed. Pass the exported objects"
        )
    for file in files:
        shown = printable(str(file))
        try:
            with file.open("rb") as opened:
                yield shown, opened.read(_LARGEST_FILE + 1)
        except OSError as error:
            gathered.reject(shown, f"can't be read: {error.strerror}")


def _documents(shown: str, data: bytes, gathered: _Gathered) -> Iterator[tuple[str, Any]]:
    """Yield (file:line, document) of all that can be parsed."""
    if len(data) > _LARGEST_FILE:
        gathered.reject(shown, f"larger than {_LARGEST_FILE} bytes: divide it")
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        gathered.reject(shown, "not a text in UTF-8")
        return
    if text.lstrip().startswith(("{", "[")):
        # Mostly JSON; YAML in flow style may begin like this, too, but does not allow surrogate pairs.
        try:
            yield f"{shown}:1", msgspec.json.decode(text)  # noqa: TID251 - plain values, of no type
        except (msgspec.DecodeError, RecursionError) as error:
            if not shown.endswith(".json"):
                yield from _yaml_documents(shown, text, gathered)
            else:
                gathered.reject(shown, f"not JSON: {one_line(plain_words(error))}")
    else:
        yield from _yaml_documents(shown, text, gathered)


def _yaml_documents(shown: str, text: str, gathered: _Gathered) -> Iterator[tuple[str, Any]]:
    for line, part in _split(text):
        try:
            document = load(part)
        except yaml.YAMLError as error:
            at, why = yaml_problem(error, part)
            gathered.reject(f"{shown}:{line + at - 1}", f"not YAML: {why}")
        else:
            if document is not None:
                yield f"{shown}:{line}", document


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of its first line, text) of each document, so that a broken one hides no other."""
    start, line = 0, 1
    for separator in _SEPARATOR.finditer(text):
        part = text[start : separator.start()]
        if not _DIRECTIVES.fullmatch(part):
            yield line, part
        start = separator.end()
        line += part.count("\n")
    yield line, text[start:]


def _gather(document: Any, where: str, gathered: _Gathered) -> None:  # noqa: ANN401 - any YAML value
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        gathered.reject(where, "not an API object: it has no kind")
        return
    kind: str = document["kind"]
    if kind.endswith("List"):
        _gather_list(document, where, gathered)
        return
    gathered.objects_seen += 1
    try:
        _decode(kind, document, where, gathered)
    except api.DecodingError as error:
        decisive = kind in {"Node", "Service"}  # no API server has such a one, so a person can correct it
        gathered.reject(f"{where}: {describe(document, kind)}", str(error), decisive=decisive)


def _gather_list(document: dict[str, Any], where: str, gathered: _Gathered) -> None:
    """Decode each item of a List, or of a typed one (ServiceList), whose items need not name their kind."""
    items = document.get("items") or []
    if not isinstance(items, list):
        gathered.reject(where, "a List whose items are not a list")
        return
    kind = document["kind"].removesuffix("List")
    for index, item in enumerate(items):
        at = f"{where}: items[{index}]"
        if isinstance(item, dict) and isinstance(item.get("kind"), str) and item["kind"].endswith("List"):
            gathered.reject(at, "a List within a List")
            continue
        if kind and isinstance(item, dict):
            item = {"kind": kind, "apiVersion": document.get("apiVersion"), **item}  # noqa: PLW2901
        _gather(item, at, gathered)


def _decode(kind: str, document: dict[str, Any], where: str, gathered: _Gathered) -> None:
    """Take over the object if it is in a collection that is read from a cluster, too."""
    api_version = document.get("apiVersion")
    group = api_version.rpartition("/")[0] if isinstance(api_version, str) else ""
    if kind == "Ingress" and group == "extensions":  # its group until Kubernetes 1.22, with the same hosts
        group = "networking.k8s.io"
    for row in (resource for resource in gathered.rows if resource.kind == kind):
        # Another API may have a kind of the same name, such as Knative's Ingress.
        of_row = group == row.group if api_version else row not in _OPTIONAL
        if of_row and row.selects(api.decode(document, api.Head).metadata):
            decoded = row.decode(document)
            key = row.name, describe(document, kind)
            if key in gathered.objects:
                gathered.reject(f"{where}: {key[1]}", "given twice; the first one is used", decisive=False)
                return
            if decoded is not None:
                gathered.objects[key] = decoded
            elif row is resources.SERVICES:
                gathered.cluster_ips.update(decode_relay_service(document).cluster_ips)
