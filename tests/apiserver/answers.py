"""The simulated server's answer to one request."""

import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler
from math import inf

import msgspec
import yaml

from . import containers, discovery
from .access import Access
from .requests import Asked, selector
from .resources import ApiError, Object, Resource, not_found
from .store import Change, Store, Version
from .traffic import OpenWatch

APPLY = "application/apply-patch+yaml"
_MERGE_PATCH = "application/merge-patch+json"
_BUILT_IN = {"default", "kube-system", "kube-public", "kube-node-lease"}
_OWNERS = {"daemonsets", "deployments", "jobs"}
_LOOK = 0.5
"""Seconds after which an idle stream looks whether its client is still there."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its body, or the lines of a watch."""

    code: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    lines: Callable[[OpenWatch], Generator[bytes, None, None]] | None = None


_NOTHING = Reply(404, b"404 page not found\n", "text/plain; charset=utf-8")


def json_reply(code: int, value: object) -> Reply:
    return Reply(code, msgspec.json.encode(value))


def error_line(error: ApiError) -> bytes:
    return b'{"type":"ERROR","object":%s}\n' % msgspec.json.encode(error.body())


class Answers:
    """What answers: objects, rights and running containers."""

    def __init__(self) -> None:
        self.store = Store()
        self.access = Access()
        self.containers = containers.Containers()
        # Seconds between bookmarks, if a client allows them: the real server takes about a minute.
        self.bookmark_interval = 0.5
        # Lists that were not read to their end, by what their `continue` begins with.
        self._lists: dict[str, tuple[int, list[Version]]] = {}

    def answer(self, asked: Asked, request: BaseHTTPRequestHandler, body: bytes) -> Reply:
        headers = request.headers
        try:
            self._check(asked, headers)
            if not asked.plural:
                told = discovery.answers(self.store.resources).get(asked.path)
                return _NOTHING if told is None else json_reply(200, told)
            if all(row.base != asked.base for row in self.store.resources):
                return _NOTHING
            if asked.verb in {"list", "watch", "get"}:
                return self._read(self._resource(asked), asked, headers)
            return self._write(self._resource(asked), asked, headers.get_content_type(), body)
        except ApiError as error:
            return json_reply(error.code, error.body())

    def _check(self, asked: Asked, headers: Message) -> None:
        # Since Kubernetes 1.35 an upgraded GET takes the right that a POST takes, too.
        for verb in (asked.verb, *(["create"] if asked.subresource == "exec" else [])):
            user = (headers.get("Authorization", ""), headers.get("Impersonate-User", ""))
            self.access.check(replace(asked, verb=verb), *user)

    def _resource(self, asked: Asked) -> Resource:
        for row in self.store.resources:
            # All of a kind can be read without a namespace.
            namespaced = bool(asked.namespace) or (row.namespaced and not asked.name)
            if (row.base, row.plural, row.namespaced) == (asked.base, asked.plural, namespaced) and (
                not asked.subresource or (row.plural, asked.subresource) in containers.SUBRESOURCES
            ):
                return row
        raise ApiError(404, "NotFound", "the server could not find the requested resource", {})

    def _read(self, resource: Resource, asked: Asked, headers: Message) -> Reply:
        assert (asked.verb == "get") == bool(asked.name), "one object is got, others are listed"
        if asked.verb == "list":
            return Reply(200, self._page(resource, asked))
        if asked.verb == "watch":
            return self._watch(resource, asked)
        version = self.store.version(resource, asked.namespace, asked.name)
        if asked.subresource == "exec":
            frames = containers.frames(self.containers.program(asked)())
            return Reply(101, frames, headers=containers.handshake(headers))
        if asked.subresource == "log":
            return Reply(200, self.containers.log(asked), "text/plain")
        return Reply(200, version.typed(resource))

    def _write(self, resource: Resource, asked: Asked, content_type: str, body: bytes) -> Reply:
        # The collection is written by POST alone: deletecollection is not imitated, nor is any dry run.
        assert bool(asked.name) != (asked.verb == "create"), "a write of a collection, or of one object"
        assert not asked.query.get("dryRun"), "a dry run"
        match asked.verb:
            case "create":
                return json_reply(201, self._create(_object(resource, asked, body)))
            case "update":
                return json_reply(200, self.store.update(_object(resource, asked, body)))
            case "patch":
                return self._patch(resource, asked, content_type, body)
            case _:
                return self._delete(resource, asked, body)

    # Lists and watches

    def _page(self, resource: Resource, asked: Asked) -> bytes:
        query = asked.query
        # Helm's client lists from 0: any state will do.
        assert query.get("resourceVersion", "0") in {"", "0"}, "no list of another version is imitated"
        token, _, start = query.get("continue", "").partition(".")
        first = int(start or 0)
        if token:
            revision, versions = self._lists[token]
            text = "The provided continue parameter is too old to display a consistent list result."
            self.store.check(revision, text)
        else:
            shown = _shown(resource, asked)
            revision, versions = self.store.snapshot(resource)
            versions = [version for version in versions if shown(version)]
        end = first + (int(query.get("limit") or 0) or len(versions))
        metadata: Object = {"resourceVersion": str(revision)}
        if end < len(versions):
            token = token or uuid.uuid4().hex
            self._lists[token] = revision, versions
            metadata["continue"] = f"{token}.{end}"
        head = msgspec.json.encode(
            {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
        )
        items = (each.typed(resource) if resource.custom else each.item for each in versions[first:end])
        return b'%s,"items":[%s]}' % (head[:-1], b",".join(items))

    def _watch(self, resource: Resource, asked: Asked) -> Reply:
        if "sendInitialEvents" in asked.query:
            # Helm's client asks for a list as a stream; after this answer it lists, as before 1.34.
            raise ApiError(422, "Invalid", "sendInitialEvents is forbidden unless WatchList is enabled")
        return Reply(200, lines=partial(self._lines, resource, asked, _shown(resource, asked)))

    def _lines(
        self, resource: Resource, asked: Asked, shown: Callable[[Version], bool], watch: OpenWatch
    ) -> Generator[bytes, None, None]:
        """See "API concepts: Efficient detection of changes" and KEP-956 (bookmarks)."""
        since, changes = int(asked.query.get("resourceVersion") or 0), list[Change]()
        if not since:
            since, versions = self.store.snapshot(resource)
            changes = [Change(since, None, version) for version in versions]
        try:
            self.store.check(since)
        except ApiError as error:
            yield error_line(error)
            return
        interval = self.bookmark_interval if asked.asks("allowWatchBookmarks") else inf
        now = time.monotonic()
        deadline = now + (int(asked.query.get("timeoutSeconds") or 0) or inf)
        bookmark_due = now + interval
        while True:
            yield from filter(None, (_event(resource, shown, change) for change in changes))
            now = time.monotonic()
            if now >= min(deadline, bookmark_due):
                # The real server sends one last bookmark shortly before it ends a stream.
                if interval < inf:
                    yield _bookmark(resource, since)
                if now >= deadline:
                    return
                bookmark_due = now + interval
            if watch.is_over():
                return
            seconds = min(deadline, bookmark_due, now + _LOOK) - now
            since, changes = self.store.changes(resource, since, seconds, watch.is_over)

    # Writes

    def _create(self, obj: Object) -> Object:
        """Create an object; as long as no Namespace was created, all exist."""
        namespaces = self.store.resource("namespaces")
        known = {version.key for version in self.store.snapshot(namespaces)[1]}
        namespace = obj["metadata"].get("namespace", "")
        if namespace and known and namespace not in known | _BUILT_IN:
            raise not_found(namespace, namespaces)
        return self.store.create(obj)

    def _patch(self, resource: Resource, asked: Asked, content_type: str, body: bytes) -> Reply:
        where = (resource.plural, asked.name, asked.namespace)
        if content_type == _MERGE_PATCH:
            return json_reply(200, self.store.patch(*where, msgspec.json.decode(body, type=Object)))
        # The real one takes JSON patches and strategic merge patches as well. Server-side apply is as for the
        # only manager of all fields, who takes none back.
        assert content_type == APPLY, f"a patch of type {content_type} is not imitated"
        obj = _object(resource, asked, msgspec.json.encode(yaml.load(body, yaml.CSafeLoader)))
        try:
            return json_reply(200, self.store.patch(*where, obj))
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            return json_reply(201, self._create(obj))

    def _delete(self, resource: Resource, asked: Asked, body: bytes) -> Reply:
        options = msgspec.json.decode(body, type=Object) if body else {}
        assert not options.get("preconditions"), "no preconditions are imitated"
        # What owns nothing, the garbage collector lets go at once: here, it never gets the finalizer.
        foreground = options.get("propagationPolicy") == "Foreground" and resource.plural in _OWNERS
        last = self.store.delete(resource.plural, asked.name, asked.namespace, foreground=foreground)
        if last["metadata"].get("finalizers"):
            return json_reply(200, last)
        # Of some kinds, among them Service, the real server answers with the last version all the same.
        details = {"name": asked.name, "group": resource.group, "kind": resource.plural}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return json_reply(200, {**status, "details": details})


def _shown(resource: Resource, asked: Asked) -> Callable[[Version], bool]:
    matches = selector(resource, asked.query)
    inside = f"{asked.namespace}/" if asked.namespace else ""
    if not asked.query.keys() & {"fieldSelector", "labelSelector"}:
        return lambda version: version.key.startswith(inside)
    return lambda version: version.key.startswith(inside) and matches(version.obj)


def _event(resource: Resource, shown: Callable[[Version], bool], change: Change) -> bytes:
    """Return the line of the event that a client sees which is shown only some objects, if it sees any.

    An object that stops to match is DELETED for this client, with its old content and the revision of the
    change; one that begins to match is ADDED (k8s.io/apiserver, convertToWatchEvent).
    """
    before = change.old is not None and shown(change.old)
    if change.new is not None and shown(change.new):
        kind, version = "MODIFIED" if before else "ADDED", change.new
    elif change.old is not None and before:
        kind, version = "DELETED", change.old.at(change.revision)
    else:
        return b""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), version.typed(resource))


def _bookmark(resource: Resource, revision: int) -> bytes:
    metadata = {"resourceVersion": str(revision)}
    obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"


def _object(resource: Resource, asked: Asked, body: bytes) -> Object:
    """Read the object that a request brings; the real server refuses one that belongs elsewhere."""
    own = {"kind": resource.kind, "apiVersion": resource.api_version}
    obj: Object = own | msgspec.json.decode(body, type=Object)
    assert own.items() <= obj.items(), "an object of another kind"
    # Clients send nulls for what they leave out.
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if value is not None}
    for key, value in (("namespace", asked.namespace), ("name", asked.name)):
        if value:
            assert metadata.setdefault(key, value) == value, f"an object of another {key}"
    return obj | {"metadata": metadata}
