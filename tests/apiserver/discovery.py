"""What the server says of itself: which groups there are, in which versions, with which resources.

The unaggregated form of "API concepts: API group and resource discovery". Of OpenAPI v3 there is what tells
clients that the server validates fields itself (KEP-2885): Helm and kubectl read it first.
"""

from collections.abc import Sequence

from .resources import Object, Resource

_OPENAPI = "/openapi/v3"
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def answers(resources: Sequence[Resource]) -> dict[str, Object]:
    """Return the answer for each path that is no resource's."""
    groups = dict.fromkeys(row.group for row in resources if row.group)
    bases = {base: [row for row in resources if row.base == base] for base in {row.base for row in resources}}
    urls = {base.lstrip("/"): {"serverRelativeURL": f"{_OPENAPI}{base}?hash=0"} for base in bases}
    told = [_group(resources, group) for group in groups]
    found: dict[str, Object] = {
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": told},
        _OPENAPI: {"paths": urls},
    }
    for each in told:
        found[f"/apis/{each['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **each}
    for base, rows in bases.items():
        kind = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": rows[0].api_version}
        found[base] = {**kind, "resources": [_entry(row) for row in rows]}
        info = {"title": "Kubernetes", "version": "unversioned"}
        paths = dict(map(_openapi, rows))
        found[f"{_OPENAPI}{base}"] = {"openapi": "3.0.0", "info": info, "paths": paths}
    return found


def _openapi(row: Resource) -> tuple[str, Object]:
    kind = {"group": row.group, "version": row.version, "kind": row.kind}
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    patch = {"x-kubernetes-group-version-kind": kind, "parameters": [parameter], "responses": {}}
    namespace = "namespaces/{namespace}/" if row.namespaced else ""
    return f"{row.base}/{namespace}{row.plural}/{{name}}", {"patch": patch}


def _group(resources: Sequence[Resource], group: str) -> Object:
    versions = dict.fromkeys(row.version for row in resources if row.group == group)
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _entry(row: Resource) -> Object:
    names = {"name": row.plural, "singularName": row.kind.lower(), "kind": row.kind}
    return {**names, "namespaced": row.namespaced, "verbs": _VERBS}
