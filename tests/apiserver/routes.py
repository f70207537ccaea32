"""What a request asks for: its Kubernetes verb and resource, read from method, path and query.

The same reading as RequestInfo in k8s.io/apiserver: authorization and the fault rules look at its result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from . import discovery
from .resources import Resource

VERSION = "/version"
TRUE = frozenset({"1", "true", "True", "t", "T", "TRUE"})
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the API understands it.

    Attributes:
        verb: get, list, watch, create, update, patch or delete.
        path: the path without query.
        query: of a repeated parameter the last.
        resource: what it is about; None for a path that is no resource, such as /version or /apis.
        namespace: empty for all namespaces and for what has none.
        name: the object's name, empty for a collection.
        subresource: one of the resource's `connects`, or empty.
        missing: that there is no such resource; `resource` has the names that were asked for.
        unknown: that no API group is at this path: the real server answers plain text, not a Status.
    """

    verb: str
    path: str
    query: Mapping[str, str]
    resource: Resource | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    missing: bool = False
    unknown: bool = False


def read(method: str, target: str, resources: Sequence[Resource]) -> Asked:
    """Read a request line."""
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    verb = _VERBS[method]
    path = parts.path.rstrip("/")  # The generated clients ask for /version/.
    if path == VERSION or path in discovery.paths(resources):
        return Asked(verb, path, query)
    base, rest = _split(parts.path)
    served = [row for row in resources if row.base == base]
    if not served and (not base.startswith("/api") or not rest):
        return Asked(verb, parts.path, query, unknown=True)
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = [*rest, "", "", ""][: max(3, len(rest))]
    for row in served:
        if row.plural == plural and not more and (row.namespaced or not namespace):
            break
    else:
        row = Resource(base.split("/")[2] if base.startswith("/apis/") else "", "", plural, "")
    missing = (
        not row.kind
        or bool(subresource and subresource not in row.connects)
        or (row.namespaced and bool(name) and not namespace)
    )
    exact = _exact_verb(verb, name, query)
    assert exact != "create" or missing or not row.namespaced or namespace, "no namespace to create it in"
    return Asked(exact, parts.path, query, row, namespace, name, subresource, missing, unknown=not served)


def _split(path: str) -> tuple[str, list[str]]:
    """Part a path into that of its group and version, and the segments below."""
    segments = [unquote(segment) for segment in path.strip("/").split("/")]
    depth = 2 if segments[0] == "api" else 3
    return "/" + "/".join(segments[:depth]), segments[depth:]


def _exact_verb(verb: str, name: str, query: Mapping[str, str]) -> str:
    if verb == "get":
        if name:
            return "get"
        return "watch" if query.get("watch") in TRUE else "list"
    # POST goes to the collection, PUT, PATCH and DELETE to an object; deletecollection is not imitated.
    assert (verb == "create") != bool(name), f"{verb} of a collection, or of one object"
    return verb
