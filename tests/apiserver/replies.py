"""Everything but watches: the answer to one request, made from the store."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import yaml

from . import discovery, listing, statuses
from .resources import Object, Resource
from .routes import Asked
from .selecting import Selector
from .store import Store

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
    after = (error.details or {}).get("retryAfterSeconds")
    return Reply(
        error.code,
        msgspec.json.encode(error.body()),
        headers=(("Retry-After", str(after)),) if after else (),
    )


def plain(path: str, resources: Sequence[Resource]) -> Reply:
    """Answer for /version, the health paths, and those that tell what exists."""
    if path.startswith(("/api", "/openapi")):
        return json_reply(200, discovery.answer(resources, path))
    if path != "/version":
        return Reply(200, b"ok", "text/plain; charset=utf-8")
    return json_reply(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"})


def answer(store: Store, asked: Asked, selector: Selector, body: bytes, content_type: str) -> Reply:
    """Do what a request about a resource asks for, with any verb but watch. Raises ApiError."""
    resource = asked.resource
    assert resource is not None, "plain paths have no objects"
    if asked.query.get("dryRun"):
        raise statuses.bad_request("dryRun: this simulated server does not imitate it")
    match asked.verb:
        case "list":
            return Reply(200, listing.page(store, resource, asked.namespace, selector, asked.query))
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
    raise statuses.method_not_allowed()


def _created(store: Store, obj: Object) -> Object:
    namespace = obj["metadata"].get("namespace", "")
    if namespace and namespace not in _BUILT_IN and not store.has_namespace(namespace):
        raise statuses.not_found(namespace, store.resource("namespaces"))
    return store.create(obj)


def _patched(store: Store, resource: Resource, asked: Asked, body: bytes, content_type: str) -> Reply:
    if content_type == _APPLY:
        return _applied(store, resource, asked, body)
    if content_type != _MERGE_PATCH:
        # The real one takes JSON patches and strategic merge patches as well.
        raise statuses.bad_request(f"{content_type}: this simulated server does not imitate it")
    change = _decoded(body)
    _check_place(asked, change.get("metadata") or {})
    return json_reply(200, store.patch(resource.plural, asked.name, asked.namespace, change))


def _applied(store: Store, resource: Resource, asked: Asked, body: bytes) -> Reply:
    """Create the object or merge into it, as server-side apply does for the only manager of its fields.

    Not imitated: who manages which field, so that nothing conflicts.
    """
    if not asked.query.get("fieldManager"):
        what = "Required value: is required for apply patch"
        raise statuses.invalid_options("PatchOptions", "fieldManager", what, "FieldValueRequired")
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
    options = _decoded(body) if body else {}
    # What owns nothing, the garbage collector lets go at once: here, it never gets the finalizer.
    foreground = options.get("propagationPolicy") == "Foreground" and resource.plural in _OWNERS
    if options.get("preconditions"):
        raise statuses.bad_request("preconditions: this simulated server does not imitate it")
    last = store.delete(resource.plural, asked.name, asked.namespace, foreground=foreground)
    if last["metadata"].get("finalizers"):
        return json_reply(200, last)
    # Of some kinds, among them Service, the real server answers with the last version all the same.
    details = {"name": asked.name, "group": resource.group, "kind": resource.plural}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return json_reply(200, status)


def _decoded(body: bytes) -> Object:
    try:
        return msgspec.json.decode(body, type=Object)
    except msgspec.MsgspecError as error:
        raise statuses.bad_request(f"the object provided is unrecognized: {error}") from error


def _object(resource: Resource, asked: Asked, body: bytes) -> Object:
    """Read the object that a request brings and check that it belongs where it was sent."""
    obj: Object = {"kind": resource.kind, "apiVersion": resource.api_version} | _decoded(body)
    if (obj["kind"], obj["apiVersion"]) != (resource.kind, resource.api_version):
        text = (
            f"{obj['kind']} in version {obj['apiVersion']!r} cannot be handled as a {resource.kind}: "
            f"unknown conversion"
        )
        raise statuses.bad_request(text)
    metadata = obj.setdefault("metadata", {})
    # Clients send nulls for what they leave out.
    for key in [key for key, value in metadata.items() if value is None]:
        del metadata[key]
    _check_place(asked, metadata)
    if asked.namespace:
        metadata["namespace"] = asked.namespace
    if asked.name:
        metadata["name"] = asked.name
    return obj


def _check_place(asked: Asked, metadata: Object) -> None:
    """Check that an object belongs where it was sent."""
    if metadata.get("namespace", asked.namespace) != asked.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    name = metadata.get("name", asked.name)
    if asked.name and name != asked.name:
        text = f"the name of the object ({name}) does not match the name on the URL ({asked.name})"
        raise statuses.bad_request(text)
