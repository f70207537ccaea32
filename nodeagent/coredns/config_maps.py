"""ConfigMaps, read and replaced by compare-and-swap on their resourceVersion."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeagent.coredns.naming import CONFIG_MAP_BYTES
from nodeagent.errors import ApplyError, SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import NotFoundError
from nodeagent.sources.kubernetes.resources import object_path

_SECONDS = 10.0


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
        raw = json.loads(connection.get_json(path, timeout=_SECONDS))
    except NotFoundError:
        return None
    except ValueError as error:
        raise SourceError(f"get {path}: the answer is invalid: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("metadata"), dict):
        raise SourceError(f"get {path}: the answer is not a ConfigMap")
    return CoreDnsConfigMap(ref, raw)


def write(connection: Connection, config_map: CoreDnsConfigMap, texts: Mapping[str, str | None]) -> None:
    """Write texts of one ConfigMap in one compare-and-swap; all else stays. RBAC: update it by name.

    Args:
        connection: To the API server.
        config_map: As it was read; its resourceVersion is what the API compares.
        texts: By key; None removes the key.

    Raises:
        ConflictError: another program wrote it since it was read; nothing was changed.
        ApplyError: it would be larger than the API accepts; nothing was changed.
        SourceError: another problem with the API.
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
    body = {"kind": "ConfigMap", "apiVersion": "v1", **config_map.raw, "data": data}
    connection.write("update", object_path(config_map.ref), body, _SECONDS)
