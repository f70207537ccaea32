"""What the server says of itself: which groups there are, in which versions, with which resources.

The unaggregated form of "API concepts: API group and resource discovery": APIGroupList, APIGroup,
APIResourceList. Every authenticated user may read it (ClusterRole system:discovery).
"""

from collections.abc import Collection, Sequence

from .resources import Object, Resource

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def paths(resources: Sequence[Resource]) -> Collection[str]:
    """Give the paths that are answered with what exists."""
    groups = {f"/apis/{row.group}" for row in resources if row.group}
    return {"/apis", *groups, *(row.base for row in resources)}


def answer(resources: Sequence[Resource], path: str) -> Object:
    """Give the answer for one of these paths."""
    if path == "/apis":
        groups = dict.fromkeys(row.group for row in resources if row.group)
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(resources, group) for group in groups],
        }
    found = [row for row in resources if row.base == path]
    if not found:
        group = path.removeprefix("/apis/")
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(resources, group)}
    of_version = found[0].base.removeprefix("/apis/").removeprefix("/api/")
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": of_version,
        "resources": [entry for row in found for entry in _entries(row)],
    }


def _group(resources: Sequence[Resource], group: str) -> Object:
    versions = dict.fromkeys(row.version for row in resources if row.group == group)
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _entries(row: Resource) -> list[Object]:
    entry = {
        "name": row.plural,
        "singularName": row.kind.lower(),
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": _VERBS,
    }
    status = {
        **entry,
        "name": f"{row.plural}/status",
        "singularName": "",
        "verbs": ["get", "patch", "update"],
    }
    return [entry, status] if row.has_status else [entry]
