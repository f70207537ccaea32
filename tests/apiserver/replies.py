"""Everything but watches: the answer to one request, made from the store."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
import yaml

from tests.apiserver import discovery, statuses
from tests.apiserver.history import Version
from tests.apiserver.resources import Object, Resource
from tests.apiserver.routes import Asked
from tests.apiserver.selecting import Selector
from tests.apiserver.store import Store


class _Token(msgspec.Struct):
    """A continue token as the real server writes it."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"

    def text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def _token(text: str) -> _Token:
    return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)


def page(
    store: Store, resource: Resource, namespace: str, selector: Selector, query: Mapping[str, str]
) -> bytes:
    """Give one page of a list as JSON: of one namespace, or of all (empty).

    Raises:
        ApiError: 410 when the token's version is no longer known.
    """
    limit = int(query.get("limit") or 0)
    # Helm's client lists from 0: any state will do.
    assert query.get("resourceVersion", "0") in {"", "0"}, "no list of another version is imitated"
    token = _token(query["continue"]) if query.get("continue") else None
    try:
        snapshot = store.snapshot(resource, token.rv if token else None)
    except statuses.ApiError as error:
        text = "The provided continue parameter is too old to display a consistent list result."
        raise statuses.ApiError(410, "Expired", text) from error
    start, inside = token.start if token else "", f"{namespace}/" if namespace else ""
    rest = [one for one in snapshot.versions if one.key >= start and one.key.startswith(inside)]
    candidates = (version for version in rest if selector.matches(version.obj))
    found: list[Version] = list(islice(candidates, limit or None))
    metadata: dict[str, str | int] = {"resourceVersion": str(snapshot.revision)}
    if limit and len(found) == limit and next(candidates, None) is not None:
        metadata["continue"] = _Token(snapshot.revision, found[-1].key + "\0").text()
        if not selector:
            # With a selector the server cannot know, and says nothing.
            metadata["remainingItemCount"] = len(rest) - len(found)
    head = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        msgspec.json.encode(metadata),
    )
    items = (version.typed(resource) if resource.custom else version.item for version in found)
    return head + b",".join(items) + b"]}"


_MERGE_PATCH = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_BUILT_IN = ("default", "kube-system", "kube-public", "kube-node-lease")
_OWNERS = ("daemonsets", "deployments", "jobs")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of known length."""

    code: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def json_reply(code: int, value: object) -> Reply:
    """Give an answer that is `value` as JSON."""
    return Reply(code, msgspec.json.encode(value))


def refusal(error: statuses.ApiError) -> Reply:
    """Give the answer that is a Status."""
    return json_reply(error.code, error.body())


def plain(path: str, resources: Sequence[Resource]) -> Reply:
    """Answer for /version, and the paths that tell what exists."""
    if path.startswith(("/api", "/openapi")):
        return json_reply(200, discovery.answer(resources, path))
    return json_reply(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"})


def answer(store: Store, asked: Asked, selector: Selector, body: bytes, content_type: str) -> Reply:
    """Do what a request about a resource asks for, with any verb but watch. Raises ApiError."""
    resource = asked.resource
    assert resource is not None, "plain paths have no objects"
    assert not asked.query.get("dryRun"), "no dry run is imitated"
    match asked.verb:
        case "list":
            return Reply(200, page(store, resource, asked.namespace, selector, asked.query))
        case "get":
            return Reply(200, store.version(resource, asked.namespace, asked.name).typed(resource))
        case "create":
            return json_reply(201, _created(store, _object(resource, asked, body)))
        case "update":
            return json_reply(200, store.update(_object(resource, asked, body)))
        case "patch":
            return _patched(store, resource, asked, body, content_type)
        case "delete":
            return _delete(store, resource, asked, body)
    raise NotImplementedError(asked.verb)


def _created(store: Store, obj: Object) -> Object:
    namespace = obj["metadata"].get("namespace", "")
    if namespace and namespace not in _BUILT_IN and not store.has_namespace(namespace):
        raise statuses.not_found(namespace, store.resource("namespaces"))
    return store.create(obj)


def _patched(store: Store, resource: Resource, asked: Asked, body: bytes, content_type: str) -> Reply:
    if content_type == _APPLY:
        return _applied(store, resource, asked, body)
    # The real one takes JSON patches and strategic merge patches as well.
    assert content_type == _MERGE_PATCH, f"a patch of type {content_type} is not imitated"
    change = msgspec.json.decode(body, type=Object)
    return json_reply(200, store.patch(resource.plural, asked.name, asked.namespace, change))


def _applied(store: Store, resource: Resource, asked: Asked, body: bytes) -> Reply:
    """Create the object or merge into it, as server-side apply does for the only manager of its fields.

    Not imitated: who manages which field, so that nothing conflicts.
    """
    obj = _object(resource, asked, msgspec.json.encode(yaml.safe_load(body)))
    place = (resource.qualified, asked.namespace, asked.name)
    before, store.applied[place] = store.applied.get(place, {}), obj
    try:
        store.version(resource, asked.namespace, asked.name)
    except statuses.ApiError:
        return json_reply(201, _created(store, obj))
    change = _no_longer_named(before, obj)
    return json_reply(200, store.patch(resource.plural, asked.name, asked.namespace, change))


def _no_longer_named(before: Object, now: Object) -> Object:
    """Return `now` as a merge patch that also removes what only `before` has. Pure."""
    gone: Object = dict.fromkeys(before.keys() - now.keys())
    return gone | {
        key: _no_longer_named(before[key], value)
        if isinstance(value, dict) and isinstance(before.get(key), dict)
        else value
        for key, value in now.items()
    }


def _delete(store: Store, resource: Resource, asked: Asked, body: bytes) -> Reply:
    options = msgspec.json.decode(body, type=Object) if body else {}
    # What owns nothing, the garbage collector lets go at once: here, it never gets the finalizer.
    foreground = options.get("propagationPolicy") == "Foreground" and resource.plural in _OWNERS
    assert not options.get("preconditions"), "no preconditions are imitated"
    last = store.delete(resource.plural, asked.name, asked.namespace, foreground=foreground)
    if last["metadata"].get("finalizers"):
        return json_reply(200, last)
    # Of some kinds, among them Service, the real server answers with the last version all the same.
    details = {"name": asked.name, "group": resource.group, "kind": resource.plural}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return json_reply(200, status)


def _object(resource: Resource, asked: Asked, body: bytes) -> Object:
    """Read the object that a request brings; the real server refuses one that belongs elsewhere."""
    own = {"kind": resource.kind, "apiVersion": resource.api_version}
    obj: Object = own | msgspec.json.decode(body, type=Object)
    assert own.items() <= obj.items(), "an object of another kind"
    metadata = obj.setdefault("metadata", {})
    # Clients send nulls for what they leave out.
    for key in [key for key, value in metadata.items() if value is None]:
        del metadata[key]
    for key, value in (("namespace", asked.namespace), ("name", asked.name)):
        if value:
            assert metadata.setdefault(key, value) == value, f"an object of another {key}"
    return obj
