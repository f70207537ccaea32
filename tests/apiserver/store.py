"""The objects, their versions, and the history that watches read.

One counter numbers every write to every resource, as etcd's revision does ("API concepts: Resource
versions"). A write is seen by all readers at once or not at all. Objects go in and come out as copies.
"""

import threading
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import msgspec

from .resources import RESOURCES, ApiError, Object, Resource, not_found

_encode = msgspec.json.Encoder().encode
_TYPE = {"kind", "apiVersion"}
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
"""What no write changes."""
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass
class Version:
    """An object as it was from one revision on; `item` is its JSON without kind and apiVersion."""

    key: str
    item: bytes

    @cached_property
    def obj(self) -> Object:
        """The same as `item`: it must not be changed."""
        return msgspec.json.decode(self.item, type=Object)

    def typed(self, resource: Resource) -> bytes:
        """Return the object as JSON with its kind and apiVersion."""
        return f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode() + self.item[1:]

    def copy(self, resource: Resource) -> Object:
        return msgspec.json.decode(self.typed(resource), type=Object)

    def at(self, revision: int) -> "Version":
        """Return the same content under a later revision, as DELETED events have it."""
        metadata = {**self.obj["metadata"], "resourceVersion": str(revision)}
        return Version(self.key, _encode({**self.obj, "metadata": metadata}))


@dataclass(frozen=True, slots=True)
class Change:
    """One write: the object before and after it; `new` is None for a deletion."""

    revision: int
    old: Version | None
    new: Version | None


class Store:
    """The cluster's objects; every method may be called from any thread."""

    def __init__(self) -> None:
        self.resources: tuple[Resource, ...] = RESOURCES
        self.revision = 1000  # A real cluster's is never near zero.
        self._compacted = 0
        self._lock = lock = threading.RLock()
        # By the qualified names of resources:
        self._current: defaultdict[str, dict[str, Version]] = defaultdict(dict)
        self._history: defaultdict[str, list[Change]] = defaultdict(list)
        self._changed = defaultdict[str, threading.Condition](lambda: threading.Condition(lock))

    # What exists

    def serve(self, *rows: Resource) -> None:
        """Let more resources exist, as the arrival of a CustomResourceDefinition does."""
        with self._lock:
            self.resources += rows

    def withdraw(self, *rows: Resource) -> None:
        """Let resources exist no more; with its last version a resource's objects are deleted first."""
        with self._lock:
            left = tuple(row for row in self.resources if row not in rows)
            for row in rows:
                if all(other.qualified != row.qualified for other in left):
                    self.replace_all(row.qualified, [])
            self.resources = left

    def resource(self, name: str) -> Resource:
        """Return the row of a resource by its plural, alone or with its group."""
        return next(row for row in self.resources if name in {row.qualified, row.plural})

    def resource_of(self, obj: Object) -> Resource:
        """Return the row of an object by its apiVersion and kind."""
        kind = (obj["apiVersion"], obj["kind"])
        return next(row for row in self.resources if (row.api_version, row.kind) == kind)

    # Reading

    def get(self, plural: str, name: str, namespace: str = "") -> Object:
        """Return a copy of one object; raises ApiError 404."""
        resource = self.resource(plural)
        return self.version(resource, namespace, name).copy(resource)

    def all(self, plural: str) -> list[Object]:
        """Return copies of all objects of a resource, in the order of their keys."""
        resource = self.resource(plural)
        return [version.copy(resource) for version in self.snapshot(resource)[1]]

    def version(self, resource: Resource, namespace: str, name: str) -> Version:
        """Return the object of a name; raises ApiError 404."""
        found = self._current[resource.qualified].get(resource.key(namespace, name))
        if found is None:
            raise not_found(name, resource)
        return found

    def snapshot(self, resource: Resource) -> tuple[int, list[Version]]:
        """Return all objects in the order of their keys, and the revision at which they were so."""
        with self._lock:
            current = self._current[resource.qualified]
            return self.revision, [current[key] for key in sorted(current)]

    def check(self, revision: int, words: str = "") -> None:
        """Raise ApiError 410 if the history after a revision was compacted."""
        if revision < self._compacted:
            told = words or f"too old resource version: {revision} ({self._compacted})"
            raise ApiError(410, "Expired", told)

    def changes(
        self, resource: Resource, since: int, seconds: float, is_over: Callable[[], bool]
    ) -> tuple[int, list[Change]]:
        """Wait for changes after a revision, so long or until `wake`; return them, and up to where."""
        with self._lock:
            history = self._history[resource.qualified]
            if not is_over() and (not history or history[-1].revision <= since):
                self._changed[resource.qualified].wait(seconds)
            first = bisect_right(history, since, key=lambda change: change.revision)
            return self.revision, history[first:]

    def wake(self) -> None:
        with self._lock:
            for changed in self._changed.values():
                changed.notify_all()

    def compact(self) -> None:
        """Forget all history: older versions are Expired from now on. Streams that are open go on."""
        with self._lock:
            self._compacted = self.revision

    # Writing

    def create(self, obj: Object) -> Object:
        """Add an object with kind and apiVersion; returns it as stored. Raises ApiError 409 if it exists."""
        resource = self.resource_of(obj)
        with self._lock:
            metadata = dict(obj.get("metadata", {}))
            name, namespace = metadata["name"], metadata.pop("namespace", None) or "default"
            if resource.namespaced:
                metadata["namespace"] = namespace
            if resource.key(namespace, name) in self._current[resource.qualified]:
                text = f'{resource.qualified} "{name}" already exists'
                raise ApiError(409, "AlreadyExists", text)
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
            metadata.pop("deletionTimestamp", None)
            if resource.kind == "Namespace":
                metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
            return self._write(resource, None, obj | {"metadata": metadata}).copy(resource)

    def create_many(self, objects: Iterable[Object]) -> None:
        with self._lock:
            for obj in objects:
                self.create(obj)

    def update(self, obj: Object) -> Object:
        """Replace an object; returns it as stored.

        Where the object names a resourceVersion or uid, it must be the current one. A write that changes
        nothing makes no new version. An object that is being deleted goes when its last finalizer is gone.
        Raises ApiError 404, there is none, or 409, another version is there.
        """
        resource = self.resource_of(obj)
        with self._lock:
            metadata = obj["metadata"]
            old = self.version(resource, metadata.get("namespace", ""), metadata["name"])
            held = old.obj["metadata"]
            if any(metadata.get(one, held[one]) != held[one] for one in ("resourceVersion", "uid")):
                text = (
                    f'Operation cannot be fulfilled on {resource.qualified} "{metadata["name"]}": the object '
                )
                text += "has been modified; please apply your changes to the latest version and try again"
                raise ApiError(409, "Conflict", text)
            new = {key: value for key, value in obj.items() if key not in _TYPE}
            kept = {key: held[key] for key in (*_KEPT, "resourceVersion") if key in held}
            new["metadata"] = {key: value for key, value in metadata.items() if key not in _KEPT} | kept
            if msgspec.json.decode(_encode(new)) == old.obj:
                return old.copy(resource)
            if "deletionTimestamp" in held and not metadata.get("finalizers"):
                return self._remove(resource, old).copy(resource)
            return self._write(resource, old, new).copy(resource)

    def patch(self, plural: str, name: str, namespace: str, change: Object) -> Object:
        """Change an object by a JSON merge patch; returns it as stored. Raises as `update` does."""
        with self._lock:
            current = self.get(plural, name, namespace)
            del current["metadata"]["resourceVersion"]
            result = _merged(current, change)
            assert isinstance(result, dict), "a merge patch of an object is an object"
            return self.update(result)

    def apply(self, obj: Object) -> Object:
        """Create the object, or replace the one there is, whatever its version."""
        resource, metadata = self.resource_of(obj), obj["metadata"]
        kept = {key: metadata[key] for key in metadata.keys() - {"resourceVersion", "uid"}}
        key = resource.key(kept.get("namespace", ""), kept["name"])
        with self._lock:
            write = self.update if key in self._current[resource.qualified] else self.create
            return write(obj | {"metadata": kept})

    def apply_all(self, objects: Iterable[Object]) -> None:
        """Create or replace many objects; no list shows a state in between."""
        with self._lock:
            for obj in objects:
                self.apply(obj)

    def delete(self, plural: str, name: str, namespace: str = "", *, foreground: bool = False) -> Object:
        """Delete an object; returns its last version. Raises ApiError 404.

        An object with finalizers stays with a deletionTimestamp until an update takes the last one away;
        `foreground` adds the one that the garbage collector takes away after the object's dependents.
        """
        resource = self.resource(plural)
        with self._lock:
            version = self.version(resource, namespace, name)
            metadata = version.obj["metadata"]
            finalizers = [*metadata.get("finalizers", []), *(["foregroundDeletion"] if foreground else [])]
            if not finalizers:
                version = self._remove(resource, version)
            elif "deletionTimestamp" not in metadata:
                marks = {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 0}
                marked = {**metadata, **marks, "finalizers": finalizers}
                version = self._write(resource, version, version.obj | {"metadata": marked})
            return version.copy(resource)

    def replace_all(self, plural: str, objects: Iterable[Object]) -> None:
        """Make the objects of a resource exactly these; no list shows a state in between."""
        resource = self.resource(plural)
        with self._lock:
            wanted = {(obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj for obj in objects}
            self.apply_all(wanted.values())
            keys = {resource.key(*where) for where in wanted}
            for version in self.snapshot(resource)[1]:
                if version.key not in keys:
                    self._remove(resource, version)

    # With the lock held

    def _write(self, resource: Resource, old: Version | None, obj: Object) -> Version:
        revision = self.revision + 1
        metadata = obj["metadata"] | {"resourceVersion": str(revision)}
        stored = {key: value for key, value in obj.items() if key not in _TYPE} | {"metadata": metadata}
        key = resource.key(metadata.get("namespace", ""), metadata["name"])
        new = Version(key, _encode(stored))
        self._record(resource, Change(revision, old, new))
        return new

    def _remove(self, resource: Resource, version: Version) -> Version:
        self._record(resource, Change(self.revision + 1, version, None))
        return version.at(self.revision)

    def _record(self, resource: Resource, change: Change) -> None:
        current = self._current[resource.qualified]
        if change.new is not None:
            current[change.new.key] = change.new
        elif change.old is not None:
            del current[change.old.key]
        self._history[resource.qualified].append(change)
        self.revision = change.revision
        self._changed[resource.qualified].notify_all()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _merged(target: object, patch: object) -> object:
    """Return `target` changed by a JSON merge patch (RFC 7386); neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        result[key] = _merged(result.get(key), value)
        if value is None:
            del result[key]
    return result
