"""The objects, their versions, and the history that watches read.

One counter numbers every write to every resource, as etcd's revision does ("API concepts: Resource
versions"). A write is seen by all readers at once or not at all. Objects go in and come out as copies.
"""

import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from . import statuses
from .history import Change, Receiver, Shelf, Snapshot, Version, encode
from .resources import RESOURCES, Object, Resource

_decode = msgspec.json.Decoder().decode


def merged(target: object, patch: object) -> object:
    """Give `target` changed by a JSON merge patch (RFC 7386); neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _key(resource: Resource, metadata: Object) -> str:
    return resource.key(metadata.get("namespace", ""), metadata["name"])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """The cluster's objects; every method may be called from any thread."""

    def __init__(self) -> None:
        self._exist(RESOURCES)
        self._shelves: defaultdict[str, Shelf] = defaultdict(Shelf)
        self._revision = 1000  # A real cluster's is never near zero.
        self._compacted = 0
        self._lock = threading.RLock()
        # By resource, namespace and name: what server-side apply was last given.
        self.applied: dict[tuple[str, str, str], Object] = {}

    # What exists

    def serve(self, *rows: Resource) -> None:
        """Let more resources exist, as the arrival of a CustomResourceDefinition does."""
        with self._lock:
            self._exist([*self.resources, *rows])

    def withdraw(self, *rows: Resource) -> None:
        """Let resources exist no more; with its last version a resource's objects are deleted first."""
        with self._lock:
            left = [row for row in self.resources if row not in rows]
            for row in self.resources:
                if row in rows and not any(other.qualified == row.qualified for other in left):
                    self.replace_all(row.qualified, [])
            self._exist(left)

    def _exist(self, resources: Sequence[Resource]) -> None:
        self.resources = tuple(resources)
        self._by_kind = {(row.api_version, row.kind): row for row in self.resources}
        self._by_name = {row.qualified: row for row in reversed(self.resources)} | {
            row.plural: row for row in reversed(self.resources)
        }

    def resource(self, name: str) -> Resource:
        """Give the row of a resource by its plural, alone or with its group; KeyError when there is none."""
        return self._by_name[name]

    def resource_of(self, obj: Object) -> Resource:
        """Give the row of an object by its apiVersion and kind; KeyError when there is none."""
        return self._by_kind[obj["apiVersion"], obj["kind"]]

    @property
    def revision(self) -> int:
        """The revision of the last write. All watches were handed everything up to it."""
        with self._lock:
            return self._revision

    # Reading

    def get(self, plural: str, name: str, namespace: str = "") -> Object:
        """Give a copy of one object; raises ApiError 404."""
        resource = self.resource(plural)
        return self.version(resource, namespace, name).copy(resource)

    def all(self, plural: str) -> list[Object]:
        """Give copies of all objects of a resource, in the order of their keys."""
        resource = self.resource(plural)
        return [version.copy(resource) for version in self.snapshot(resource).versions]

    def has_namespace(self, name: str) -> bool:
        """Tell whether a namespace exists; as long as no Namespace was created, all do."""
        with self._lock:
            known = self._shelves["namespaces"].current
            return not known or name in known

    def version(self, resource: Resource, namespace: str, name: str) -> Version:
        """Give the object of a name; raises ApiError 404."""
        with self._lock:
            found = self._shelves[resource.qualified].current.get(resource.key(namespace, name))
        if found is None:
            raise statuses.not_found(name, resource)
        return found

    def snapshot(self, resource: Resource, revision: int | None = None) -> Snapshot:
        """Give all objects as they were at a revision (None: now); raises ApiError 410 if it is forgotten."""
        with self._lock:
            at = self._revision if revision is None else revision
            if at < self._compacted:
                raise statuses.expired(at, self._compacted)
            return Snapshot(at, self._shelves[resource.qualified].ordered_at(at))

    # Watching

    def follow(self, resource: Resource, since: int | None, receive: Receiver) -> None:
        """Call `receive` for every change after `since`, first the past ones, then each as it is made.

        With `since` None every object that exists is reported as if just created. `receive` is called
        with the store locked: it must only put the change aside. Raises ApiError 410 when the history after
        `since` was compacted.
        """
        with self._lock:
            shelf = self._shelves[resource.qualified]
            if since is None:
                for version in shelf.ordered_at(self._revision):
                    receive(Change(version.revision, None, version))
            elif since < self._compacted:
                raise statuses.expired(since, self._compacted)
            else:
                for change in shelf.after(since):
                    receive(change)
            shelf.receivers.append(receive)

    def unfollow(self, resource: Resource, receive: Receiver) -> None:
        """End what `follow` began."""
        with self._lock:
            self._shelves[resource.qualified].receivers.remove(receive)

    def compact(self) -> None:
        """Forget all history; older versions are Expired from now on. Streams that are open go on."""
        with self._lock:
            self._compacted = self._revision
            for shelf in self._shelves.values():
                shelf.history.clear()

    # Writing

    def create(self, obj: Object) -> Object:
        """Add an object with kind and apiVersion; gives it as stored. Raises ApiError 409 when it exists."""
        resource = self.resource_of(obj)
        with self._lock:
            return self._add(resource, obj).copy(resource)

    def create_many(self, objects: Iterable[Object]) -> None:
        """Add many objects in one go."""
        with self._lock:
            for obj in objects:
                self._add(self.resource_of(obj), obj)

    def update(self, obj: Object) -> Object:
        """Replace an object; gives it as stored.

        Where the object names a resourceVersion or uid, it must be the current one. A write that changes
        nothing makes no new version, as in the real server. An object that is being deleted goes when its
        last finalizer is gone. Raises ApiError 404 when there is none, 409 when another version is there.
        """
        resource = self.resource_of(obj)
        with self._lock:
            return self._replace(resource, _decode(encode(obj))).copy(resource)

    def patch(self, plural: str, name: str, namespace: str, change: Object) -> Object:
        """Change an object by a JSON merge patch; gives it as stored. Raises as `update` does."""
        with self._lock:
            current = self.get(plural, name, namespace)
            del current["metadata"]["resourceVersion"]
            result = merged(current, change)
            assert isinstance(result, dict), "a merge patch of an object is an object"
            return self.update(result)

    def apply(self, obj: Object) -> Object:
        """Create the object, or replace the one there is, whatever its version."""
        resource = self.resource_of(obj)
        kept = {name: obj["metadata"][name] for name in obj["metadata"].keys() - {"resourceVersion", "uid"}}
        with self._lock:
            known = _key(resource, kept) in self._shelves[resource.qualified].current
            write = self.update if known else self.create
            return write(obj | {"metadata": kept})

    def apply_all(self, objects: Iterable[Object]) -> None:
        """Create or replace many objects; no list shows a state in between."""
        with self._lock:
            for obj in objects:
                self.apply(obj)

    def delete(self, plural: str, name: str, namespace: str = "", *, foreground: bool = False) -> Object:
        """Delete an object; gives its last version.

        Raises ApiError 404 when there is none. An object with finalizers stays with a deletionTimestamp until
        an update takes the last one away.
        `foreground` adds the one that the garbage collector takes away after the object's dependents.
        """
        resource = self.resource(plural)
        with self._lock:
            version = self.version(resource, namespace, name)
            metadata = version.obj["metadata"]
            finalizers = [*metadata.get("finalizers", []), *(["foregroundDeletion"] if foreground else [])]
            if not finalizers:
                last = self._remove(resource, version)
            elif "deletionTimestamp" in metadata:
                last = version
            else:
                marked = metadata | {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 0}
                marked["finalizers"] = finalizers
                last = self._write(resource, version, version.obj | {"metadata": marked})
        return last.copy(resource)

    def replace_all(self, plural: str, objects: Iterable[Object]) -> None:
        """Make the objects of a resource exactly these; no list shows a state in between."""
        resource = self.resource(plural)
        with self._lock:
            wanted = {_key(resource, obj["metadata"]): obj for obj in objects}
            self.apply_all(wanted.values())
            current = self._shelves[resource.qualified].current
            for version in [version for key, version in current.items() if key not in wanted]:
                self._remove(resource, version)

    # With the lock held

    def _write(self, resource: Resource, old: Version | None, obj: Object) -> Version:
        self._revision += 1
        metadata = obj["metadata"]
        obj = {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}
        obj["metadata"] = metadata | {"resourceVersion": str(self._revision)}
        new = Version(_key(resource, metadata), self._revision, encode(obj))
        self._shelves[resource.qualified].record(Change(self._revision, old, new))
        return new

    def _remove(self, resource: Resource, version: Version) -> Version:
        self._revision += 1
        self._shelves[resource.qualified].record(Change(self._revision, version, None))
        return version.at(self._revision)

    def _add(self, resource: Resource, obj: Object) -> Version:
        metadata = dict(obj.get("metadata", {}))
        name = metadata["name"]
        if not resource.namespaced:
            metadata.pop("namespace", None)
        elif not metadata.get("namespace"):
            metadata["namespace"] = "default"
        if _key(resource, metadata) in self._shelves[resource.qualified].current:
            raise statuses.ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists')
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = _now()
        metadata.pop("deletionTimestamp", None)
        if resource.kind == "Namespace":
            metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
        return self._write(resource, None, obj | {"metadata": metadata})

    def _replace(self, resource: Resource, obj: Object) -> Version:
        metadata = obj["metadata"]
        name = metadata["name"]
        old = self.version(resource, metadata.get("namespace", ""), name)
        held = old.obj["metadata"]
        if any(metadata.get(field, held[field]) != held[field] for field in ("resourceVersion", "uid")):
            why = (
                "the object has been modified; please apply your changes to the latest version and try again"
            )
            text = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
            raise statuses.ApiError(409, "Conflict", text)
        new = self._allowed(old.obj, obj)
        if new == old.obj:
            return old
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            return self._remove(resource, old)
        return self._write(resource, old, new)

    @staticmethod
    def _allowed(old: Object, obj: Object) -> Object:
        """Give the object that the write makes: what it may not change stays as it is in `old`."""
        kept = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
        new = {key: value for key, value in obj.items() if key not in {"kind", "apiVersion"}}
        new["metadata"] = {
            **{key: value for key, value in obj["metadata"].items() if key not in kept},
            **{key: old["metadata"][key] for key in kept if key in old["metadata"]},
            "resourceVersion": old["metadata"]["resourceVersion"],
        }
        return new
