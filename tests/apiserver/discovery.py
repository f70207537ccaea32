"""What the server says of itself: which groups there are, in which versions, with which resources.

The unaggregated form of "API concepts: API group and resource discovery": APIGroupList, APIGroup,
APIResourceList. Every authenticated user may read it (ClusterRole system:discovery). Of OpenAPI v3 there is
what tells clients that the server validates fields itself (KEP-2885): Helm and kubectl read it first.
"""

from collections.abc import Collection, Sequence

from .resources import Object, Resource

_OPENAPI = "/openapi/v3"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def paths(resources: Sequence[Resource]) -> Collection[str]:
    """Give the paths that are answered with what exists."""
    groups = {f"/apis/{row.group}" for row in resources if row.group}
    bases = {row.base for row in resources}
    return {"/api", "/apis", _OPENAPI, *groups, *bases, *(f"{_OPENAPI}{base}" for base in bases)}


def answer(resources: Sequence[Resource], path: str) -> Object:
    """Give the answer for one of these paths."""
    if path.startswith(_OPENAPI):
        return _openapi(resources, path.removeprefix(_OPENAPI))
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
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
        "resources": [_entry(row) for row in found],
    }


def _openapi(resources: Sequence[Resource], base: str) -> Object:
    if not base:
        bases = dict.fromkeys(row.base for row in resources)
        return {"paths": {one.lstrip("/"): {"serverRelativeURL": f"{_OPENAPI}{one}?hash=0"} for one in bases}}
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {}
    for row in resources:
        if row.base == base:
            kind = {"group": row.group, "version": row.version, "kind": row.kind}
            namespace = "namespaces/{namespace}/" if row.namespaced else ""
            patch = {"x-kubernetes-group-version-kind": kind, "parameters": [parameter], "responses": {}}
            paths[f"{base}/{namespace}{row.plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "unversioned"}, "paths": paths}


def _group(resources: Sequence[Resource], group: str) -> Object:
    versions = dict.fromkeys(row.version for row in resources if row.group == group)
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _entry(row: Resource) -> Object:
    return {
        "name": row.plural,
        "singularName": row.kind.lower(),
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": _VERBS,
    }
