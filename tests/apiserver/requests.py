"""What a request asks for: its Kubernetes verb and resource, read from method, path and query.

The same reading as RequestInfo in k8s.io/apiserver, which authorization looks at; the faults, too.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from .resources import ApiError, Object, Resource

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_TRUE = {"1", "true"}
_TERM = re.compile(r"([^\s=!]+)(!?)=([^\s=!]*)")
_BY_NAME = re.compile(r"(?:^|,)metadata\.name=([^,]*)")
_FIELDS = {"services": {"spec.type": "ClusterIP"}, "pods": {"spec.nodeName": ""}}
"""The fields that a selector may name beside metadata's, with the value of an object without it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the API understands it.

    Attributes:
        verb: get, list, watch, create, update, patch or delete.
        base: the path of its group and version; all of it if it is about no resource, such as /version.
        plural: empty if it is about no resource.
        namespace: empty for all namespaces and for what has none.
        name: the object's name, empty for a collection.
        options: the query; of a repeated parameter only `command` is asked for.
    """

    verb: str
    path: str
    options: Mapping[str, list[str]]
    base: str
    group: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def query(self) -> dict[str, str]:
        """The last value of each of the query's parameters."""
        return {key: values[-1] for key, values in self.options.items()}

    @property
    def subject(self) -> str:
        """The one object that it is about, by the path or, of a list or watch, by its fieldSelector."""
        selected = _BY_NAME.search(self.query.get("fieldSelector", ""))
        return self.name or (selected[1] if selected else "")

    def asks(self, option: str) -> bool:
        return self.query.get(option) in _TRUE


def read(method: str, target: str) -> Asked:
    parts = urlsplit(target)
    options = parse_qs(parts.query, keep_blank_values=True)
    verb = _VERBS[method]
    path = parts.path.rstrip("/")  # The generated clients ask for /version/.
    segments = [unquote(segment) for segment in path.removeprefix("/").split("/")]
    depth = {"api": 2, "apis": 3}.get(segments[0], len(segments))
    rest = segments[depth:]
    if not rest:
        return Asked(verb, path, options, path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        _, namespace, *rest = rest
    plural, name, *subresource = [*rest, ""][: max(2, len(rest))]
    if verb == "get" and not name:
        verb = "watch" if options.get("watch", [""])[-1] in _TRUE else "list"
    group, base = segments[1] if depth == 3 else "", "/" + "/".join(segments[:depth])
    return Asked(verb, path, options, base, group, plural, namespace, name, "/".join(subresource))


def selector(resource: Resource, query: Mapping[str, str]) -> Callable[[Object], bool]:
    """Whether a list or watch is shown an object, by `=` and, of fields, `!=`. Raises ApiError 400."""
    tests: list[tuple[list[str], str | None, str, bool]] = []
    known = {"metadata.name": "", "metadata.namespace": "", **_FIELDS.get(resource.plural, {})}
    for parameter in ("fieldSelector", "labelSelector"):
        for term in filter(None, query.get(parameter, "").split(",")):
            found = _TERM.fullmatch(term)
            assert found, f"{term!r} of a selector is not imitated"
            key, unlike, value = found.groups()
            if parameter == "labelSelector":
                assert not unlike, f"{term!r} of a selector is not imitated"
                tests.append((["metadata", "labels", key], None, value, False))
            elif key in known:
                tests.append((key.split("."), known[key], value, bool(unlike)))
            else:
                # A type with fields of its own words it differently from one that has only metadata's.
                text = f'"{key}" is not a known field selector: only "metadata.name", "metadata.namespace"'
                own = f"field label not supported: {key}"
                raise ApiError(400, "BadRequest", own if resource.plural in _FIELDS else text)
    return lambda obj: all(
        (_value(obj, path, default) == value) != unlike for path, default, value, unlike in tests
    )


def _value(held: object, path: list[str], default: str | None) -> object:
    for part in path:
        held = held.get(part) if isinstance(held, dict) else None
    return default if held is None else held
