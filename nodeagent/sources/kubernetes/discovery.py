"""Which of the optional kinds this API server has, and in which version.

"API concepts: API group and resource discovery", in its unaggregated form, which every version speaks. Every
authenticated user may read it (ClusterRole system:discovery).
"""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import NotJsonError
from nodeagent.sources.kubernetes.resources import NAMESPACES, Resource, optional_resource
from nodeagent.sources.optional_kinds import GATEWAYS, OPTIONAL_KINDS, OptionalKind

_SECONDS = 15.0


class _Version(Struct):
    version: str


class _Group(Struct):
    name: str
    versions: list[_Version]


class _Groups(Struct):
    groups: list[_Group]


class _Resource(Struct):
    name: str
    verbs: list[str] = field(default_factory=list)


class _Resources(Struct):
    resources: list[_Resource]


_Answer = TypeVar("_Answer")


def discover(connection: Connection) -> tuple[Resource, ...]:
    """Asks what is served; changes nothing.

    Returns:
        A row for each optional kind that is served in a version that can be read, in its best one; and the
        namespaces, by whose labels Gateways choose, where there are Gateways.

    Raises:
        ApiError: one of its kinds. What could not be asked is never taken for absent.
    """
    groups = {
        group.name: {one.version for one in group.versions}
        for group in _ask(connection, "/apis", _Groups).groups
    }

    @cache
    def plurals(group: str, version: str) -> frozenset[str]:
        found = _ask(connection, f"/apis/{group}/{version}", _Resources).resources
        return frozenset(one.name for one in found if {"list", "watch"} <= {*one.verbs})

    served = [
        (kind, version)
        for kind in OPTIONAL_KINDS
        if (version := _best(kind, groups.get(kind.group, set()), plurals)) is not None
    ]
    rows = tuple(optional_resource(kind, version) for kind, version in served)
    return (*rows, NAMESPACES) if any(kind is GATEWAYS for kind, _ in served) else rows


def _best(
    kind: OptionalKind, versions: set[str], plurals: Callable[[str, str], frozenset[str]]
) -> str | None:
    """The first of the versions that can be read in which the kind is served."""
    for version in kind.versions:
        if version in versions and kind.plural in plurals(kind.group, version):
            return version
    return None


def _ask(connection: Connection, path: str, expected: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(connection.get_json(path, timeout=_SECONDS), type=expected)
    except msgspec.MsgspecError as error:
        raise NotJsonError(f"get {path}: the answer does not tell what is served: {error}") from error
