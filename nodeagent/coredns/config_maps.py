"""ConfigMaps, read and replaced by compare-and-swap on their resourceVersion."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeagent.coredns.editing import COREFILE
from nodeagent.coredns.managed_block import blocks_of, without_blocks
from nodeagent.coredns.naming import CONFIG_MAP_BYTES
from nodeagent.errors import ApplyError, SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import NotFoundError
from nodeagent.sources.kubernetes.resources import object_path

PREVIOUS = "nodeagent.io/previous-corefile"
"""The annotation that keeps the Corefile as it was before nodeagent's first edit since."""

_MOST_ANNOTATION_BYTES = 256 << 10
"""All annotations of an object together (k8s.io/apimachinery, TotalAnnotationSizeLimitB)."""


@dataclass(frozen=True, slots=True)
class CoreDnsConfigMap:
    """A ConfigMap as it was read; `raw` is the whole object, with fields that nodeagent does not know."""

    ref: ObjectRef
    raw: Mapping[str, Any] = field(hash=False, repr=False)

    def __str__(self) -> str:
        return self.ref.path

    @property
    def data(self) -> Mapping[str, str]:
        """Its texts by key."""
        return self.raw.get("data") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        return self.raw["metadata"].get("annotations") or {}

    @property
    def last_writer(self) -> str:
        """The other program that wrote it last, by its own name (managedFields); empty if unknown."""
        entries = [
            (entry.get("time") or "", entry.get("manager") or "")
            for entry in self.raw["metadata"].get("managedFields") or []
            if entry.get("manager") != "nodeagent"
        ]
        return max(entries, default=("", ""))[1]


def read(connection: Connection, namespace: str, name: str) -> CoreDnsConfigMap | None:
    """Read a ConfigMap; None if there is none. RBAC: get it by name. Raises SourceError."""
    ref = ObjectRef("ConfigMap", namespace, name)
    path = object_path(ref)
    try:
        raw = json.loads(connection.get_json(path, timeout=10.0))
    except NotFoundError:
        return None
    except ValueError as error:
        raise SourceError(f"get {path}: the answer is invalid: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("metadata"), dict):
        raise SourceError(f"get {path}: the answer is not a ConfigMap")
    return CoreDnsConfigMap(ref, raw)


def changed(
    config_map: CoreDnsConfigMap, texts: Mapping[str, str | None], previous: str | None
) -> dict[str, Any]:
    """Return the object with other texts, all else as it was. Pure.

    Args:
        config_map: As it was read; its resourceVersion is what the API compares.
        texts: By key; None removes the key.
        previous: The value for PREVIOUS; None removes the annotation.

    Raises:
        ApplyError: it would be larger than the API accepts.
    """
    merged: dict[str, str | None] = {**config_map.data, **texts}
    data = {key: text for key, text in merged.items() if text is not None}
    size = sum(len(text.encode()) for text in data.values())
    size += sum(len(value) * 3 // 4 for value in (config_map.raw.get("binaryData") or {}).values())
    if size > CONFIG_MAP_BYTES:
        raise ApplyError(
            f"ConfigMap {config_map} would have {size:,} bytes, and the API accepts no more than "
            f"{CONFIG_MAP_BYTES:,}: it was left as it was. Serve fewer hostnames: use hosts.exclude, or an "
            "Ingress with a wildcard host instead of many"
        )
    annotations = {key: value for key, value in config_map.annotations.items() if key != PREVIOUS}
    if previous is not None:
        annotations[PREVIOUS] = previous
        size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        if size > _MOST_ANNOTATION_BYTES:
            # Having no copy is better than having no hostnames: removing the block needs none.
            del annotations[PREVIOUS]
    metadata = {key: value for key, value in config_map.raw["metadata"].items() if key != "annotations"}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        **{key: value for key, value in config_map.raw.items() if key not in {"data", "metadata"}},
        "metadata": metadata,
        "data": data,
    }


def write(
    connection: Connection,
    config_map: CoreDnsConfigMap,
    texts: Mapping[str, str | None],
    seconds: Callable[[], float],
) -> None:
    """Write texts of one ConfigMap in one compare-and-swap. RBAC: update it by name.

    Args:
        connection: To the API server.
        config_map: As it was read.
        texts: By key; None removes the key.
        seconds: Returns, right before the write, how long it may take; may raise instead.

    Raises:
        ConflictError: another program wrote it since it was read; nothing was changed.
        ApplyError: it would be larger than the API accepts; nothing was changed.
        SourceError: another problem with the API, or what `seconds` raises.
    """
    body = changed(config_map, texts, _previous(config_map, texts))
    connection.write("update", object_path(config_map.ref), body, seconds())


def put_back_previous(connection: Connection, config_map: CoreDnsConfigMap, seconds: float) -> bool:
    """Restore the Corefile that was kept, byte for byte, discarding all later edits.

    Returns:
        Whether there was one. Raises as `write`.
    """
    kept = config_map.annotations.get(PREVIOUS)
    if kept is None:
        return False
    connection.write(
        "update", object_path(config_map.ref), changed(config_map, {COREFILE: kept}, None), seconds
    )
    return True


def _previous(config_map: CoreDnsConfigMap, texts: Mapping[str, str | None]) -> str | None:
    """Return the text to keep: the Corefile as it was before nodeagent added its block.

    Nothing once the block is removed.
    """
    before, after = config_map.data.get(COREFILE), texts.get(COREFILE)
    kept = config_map.annotations.get(PREVIOUS)
    if before is None or after is None:
        return kept
    if not blocks_of(after):
        return None
    if not blocks_of(before):
        return before
    return without_blocks(before) if kept is None else kept
