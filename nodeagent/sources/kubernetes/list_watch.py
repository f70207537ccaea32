"""A whole collection, read in pages and decoded page by page.

"API concepts: Retrieving large results sets in chunks". The answer must be a proper list: anything else with
status 200 is an error and never means that there are no objects.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from nodeagent.model.objects import Unreadable
from nodeagent.sharing import shared
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import (
    BadRequestError,
    GoneError,
    NotAListError,
    NotJsonError,
    Status,
    TooLargeError,
)
from nodeagent.sources.kubernetes.resources import Item, Resource
from nodeagent.sources.objects.decoding import DecodingError, describe
from nodeagent.typed_values import from_json

Key = tuple[str, str]
"""Namespace and name; the namespace is empty for objects without one."""

PAGE = 500
"""Objects per page, as in kubectl and client-go: about 1 MB of Ingresses, so that memory stays low."""

LARGEST_OBJECT = 2 * 1024 * 1024
"""Bytes of an object as JSON; a larger one is skipped. etcd takes 1.5 MiB (its `--max-request-bytes`)."""

_ATTEMPTS = 3

NOTHING: Mapping[Key, Item] = MappingProxyType({})


class Listing(Struct, frozen=True):
    """A collection at one moment.

    Attributes:
        resource: what was listed; without its selector if the server rejected that.
        version: resourceVersion to watch from.
        items: every object, readable or not.
    """

    resource: Resource
    version: str
    items: Mapping[Key, Item]


class _Meta(Struct):
    name: str
    resourceVersion: str  # noqa: N815 - the API's field
    namespace: str = ""


class _Head(Struct):
    metadata: _Meta


class _ListMeta(Struct):
    resourceVersion: str  # noqa: N815 - the API's field
    proceed: str = field(default="", name="continue")


class _List(Struct):
    kind: str
    metadata: _ListMeta
    items: list[msgspec.Raw]


_Decoded = TypeVar("_Decoded")

_DEEPEST = 100
"""Levels of an answer: no field that is read is half as deep, and API servers accept up to 10,000."""

_BRACKET_OR_TEXT = re.compile(rb'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


def _decoded(expected: type[_Decoded], body: bytes) -> _Decoded:
    """Decode an answer, without what is nested too deep for the decoder.

    Anyone can write such an object if a custom resource accepts any field; without this, no other object of
    its kind could be read any more.
    """
    try:
        return from_json(body, expected)
    except RecursionError:
        return from_json(without_depths(body), expected)


def without_depths(body: bytes) -> bytes:
    """Return the JSON, with null in place of all that is nested too deep. Pure; linear in its length."""
    pieces = []
    depth = begin = 0
    for found in _BRACKET_OR_TEXT.finditer(body):
        match found[0]:
            case b"{" | b"[":
                depth += 1
                if depth == _DEEPEST + 1:
                    pieces += [body[begin : found.start()], b"null"]
            case b"}" | b"]":
                if depth == _DEEPEST + 1:
                    begin = found.end()
                depth -= 1
    return b"".join([*pieces, body[begin:]])


def read_list(
    connection: Connection,
    resource: Resource,
    known: Mapping[Key, Item] | None = None,
    timeout: float = 60.0,
    progress: Callable[[], None] = lambda: None,
) -> Listing:
    """Read a collection; changes nothing.

    No resourceVersion is sent: the answer is the newest and can't go back in time ("API concepts:
    Semantics for get and list").

    Args:
        connection: to the API server.
        resource: what to read.
        known: objects held already: one of the same resourceVersion is not decoded again.
        timeout: seconds for one page.
        progress: called after each page.

    Returns:
        The collection.

    Raises:
        ApiError: one of its kinds. Nothing read so far counts then.
    """
    limit = PAGE
    for attempt in range(_ATTEMPTS):
        try:
            return _pages(connection, resource, known or {}, timeout, limit, progress)
        except GoneError:
            # The pages' snapshot was compacted in the meantime. Start again; finally all in one page, as
            # client-go's pager does, which can't expire.
            if limit == 0:
                raise
            limit = PAGE if attempt == 0 else 0
        except BadRequestError:
            if not resource.dispensable:
                raise
            resource = resource.widened()
    return _pages(connection, resource, known or {}, timeout, limit, progress)


def read_item(raw: bytes, resource: Resource) -> tuple[Key | None, Item]:
    """Decode one object.

    Args:
        raw: the object as JSON.
        resource: what it belongs to.

    Returns:
        Its key, None if not even its name and version can be read; and the item, which says so if the object
        is unreadable.
    """
    try:
        meta = from_json(raw, _Head).metadata
        version = number(meta.resourceVersion)
    except (msgspec.MsgspecError, ValueError) as error:
        return None, Item(0, unreadable=Unreadable(describe(raw, resource.kind), str(error)))
    key = (shared(meta.namespace), shared(meta.name))
    if len(raw) > LARGEST_OBJECT:
        reason = f"too large: {len(raw)} bytes, of which {LARGEST_OBJECT} are read; skipped"
        return key, Item(version, unreadable=Unreadable(describe(raw, resource.kind), reason))
    try:
        return key, Item(version, resource.decode(raw))
    except DecodingError as error:
        return key, Item(version, unreadable=Unreadable(describe(raw, resource.kind), str(error)))


def number(version: str) -> int:
    """Read a resourceVersion; raises ValueError if it is not a decimal number."""
    if not (version.isascii() and version.isdigit()):
        raise ValueError(f"resourceVersion {version!r} is not a number")
    return int(version)


def _pages(  # noqa: PLR0913, PLR0917 - what read_list was given
    connection: Connection,
    resource: Resource,
    known: Mapping[Key, Item],
    timeout: float,
    limit: int,
    progress: Callable[[], None],
) -> Listing:
    items: dict[Key, Item] = {}
    version = ""
    proceed = ""
    while True:
        query = {**resource.selector, **({"limit": str(limit)} if limit else {})}
        if proceed:
            query["continue"] = proceed
        try:
            body = connection.get_json(resource.path, query, timeout)
        except TooLargeError:
            # Objects can be large: fewer at a time, down to one. A continue token works with any limit.
            if limit == 1:
                raise
            limit = max(1, (limit or PAGE) // 10)
            continue
        page = _page(body, resource)
        del body
        progress()
        version = version or page.metadata.resourceVersion
        for raw in page.items:
            _add(bytes(raw), resource, known, items)
        proceed = page.metadata.proceed
        if not proceed:
            return Listing(resource, version, items)
        # The page's bytes are freed before the next page arrives.
        del page


def _page(body: bytes, resource: Resource) -> _List:
    try:
        page = _decoded(_List, body)
        number(page.metadata.resourceVersion)
    except msgspec.ValidationError as error:
        raise NotAListError(f"list {resource.path}: the answer is not a list of objects: {error}") from error
    except msgspec.DecodeError as error:
        raise NotJsonError(f"list {resource.path}: the answer is not JSON: {error}") from error
    except ValueError as error:
        raise NotAListError(f"list {resource.path}: the answer is not a list of objects: {error}") from error
    if not page.kind.endswith("List"):
        raise NotAListError(f"list {resource.path}: the answer is a {page.kind}, not a list of objects")
    return page


def _add(raw: bytes, resource: Resource, known: Mapping[Key, Item], items: dict[Key, Item]) -> None:
    key, item = _known(raw, known) or read_item(raw, resource)
    # No object can have such a name: it only keeps the nameless apart.
    items[key or ("", f"(unnamed {len(items)})")] = item


def _known(raw: bytes, known: Mapping[Key, Item]) -> tuple[Key, Item] | None:
    if not known:
        return None
    try:
        meta = from_json(raw, _Head).metadata
    except msgspec.MsgspecError:
        return None
    key = (meta.namespace, meta.name)
    item = known.get(key)
    return (key, item) if item is not None and str(item.version) == meta.resourceVersion else None


# From one line of a watch to its meaning. Pure.


_INITIAL_END = "k8s.io/initial-events-end"

_UNNAMED = ("", "(unnamed)")
"""The key of an object without a readable name: no object can have this name."""


class Upserted(Struct, frozen=True):
    """An object was added or changed."""

    key: Key
    item: Item


class Deleted(Struct, frozen=True):
    """An object was deleted, or stopped to match the selector, at a version."""

    key: Key
    version: int


class Bookmark(Struct, frozen=True):
    """Nothing else happened up to a version (KEP-956).

    `ends_initial` says that all objects that existed when the watch began were sent (KEP-3157).
    """

    version: int
    ends_initial: bool = False


class Failed(Struct, frozen=True):
    """The server ends the stream: `code` is that of a Status, `body` the Status itself."""

    code: int
    body: bytes


class Unknown(Struct, frozen=True):
    """A type of event that did not exist when this was written."""

    type: str


WatchEvent = Upserted | Deleted | Bookmark | Failed | Unknown


class _WatchEvent(Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(Struct):
    resourceVersion: str  # noqa: N815 - the API's field
    annotations: dict[str, str] | None = None


class _Bookmark(Struct):
    metadata: _BookmarkMeta


def read_event(line: bytes, resource: Resource, known: Mapping[Key, Item] = NOTHING) -> WatchEvent:
    """Read one line.

    Args:
        line: the line, without its end.
        resource: what is watched.
        known: objects held already: one of the same resourceVersion is not decoded again.

    Returns:
        Its meaning. An object that can't be read counts nevertheless, as unreadable.

    Raises:
        NotJsonError: it is not an event. It may have reported a change: a new list is needed.
    """
    try:
        event = _decoded(_WatchEvent, line)
        match event.type:
            case "ADDED" | "MODIFIED":
                raw = bytes(event.object)
                key, item = _known(raw, known) or read_item(raw, resource)
                return Upserted(key or _UNNAMED, item)
            case "DELETED":
                key, item = read_item(bytes(event.object), resource)
                return Deleted(key or _UNNAMED, item.version)
            case "BOOKMARK":
                meta = from_json(event.object, _Bookmark).metadata
                ends_initial = (meta.annotations or {}).get(_INITIAL_END) == "true"
                return Bookmark(number(meta.resourceVersion), ends_initial)
            case "ERROR":
                return Failed(from_json(event.object, Status).code, bytes(event.object))
    except (msgspec.MsgspecError, ValueError) as error:
        text = f"watch {resource.path}: a line is not an event: {error}; a new list is needed"
        raise NotJsonError(text) from error
    return Unknown(event.type)
