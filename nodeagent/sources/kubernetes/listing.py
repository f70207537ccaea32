"""A whole collection, read in pages and decoded page by page.

"API concepts: Retrieving large results sets in chunks". The answer must be a proper list: anything else with
status 200 is an error and never means that there are no objects.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from nodeagent.model.objects import Unreadable
from nodeagent.sharing import shared
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import (
    BadRequestError,
    GoneError,
    NotJsonError,
    ServerTroubleError,
    TooLargeError,
)
from nodeagent.sources.kubernetes.resources import Item, Key, Resource
from nodeagent.sources.objects.decoding import DecodingError, describe
from nodeagent.typed_values import from_json

PAGE = 500
"""Objects per page, as in kubectl and client-go: about 1 MB of Ingresses, so that memory stays low."""

LARGEST_OBJECT = 2 * 1024 * 1024
"""Bytes of an object as JSON; a larger one is skipped. etcd takes 1.5 MiB (its `--max-request-bytes`)."""

_ATTEMPTS = 3


class Listing(Struct, frozen=True):
    """A collection at one moment.

    Attributes:
        resource: what was listed; without its selector if the server rejected that.
        version: the resourceVersion to watch from.
        items: every object, readable or not.
    """

    resource: Resource
    version: int
    items: Mapping[Key, Item]


class _Meta(Struct):
    name: str
    resourceVersion: str  # noqa: N815 - the API's field
    namespace: str = ""


class _Head(Struct):
    metadata: _Meta


class ListMeta(Struct):
    """What a list and a bookmark say of themselves."""

    resourceVersion: str  # noqa: N815 - the API's field
    proceed: str = field(default="", name="continue")


class _List(Struct):
    kind: str
    metadata: ListMeta
    items: list[msgspec.Raw]


_Decoded = TypeVar("_Decoded")

_DEEPEST = 100
"""Levels of an answer: no field that is read is half as deep, and API servers accept up to 10,000."""

_BRACKET_OR_TEXT = re.compile(rb'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


def decoded(expected: type[_Decoded], body: bytes) -> _Decoded:
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


def read_list(connection: Connection, resource: Resource) -> Listing:
    """Read a collection; changes nothing.

    No resourceVersion is sent: the answer is the newest and can't go back in time ("API concepts:
    Semantics for get and list").

    Args:
        connection: to the API server.
        resource: what to read.

    Returns:
        The collection.

    Raises:
        ApiError: one of its kinds. Nothing read so far counts then.
    """
    limit = PAGE
    for attempt in range(_ATTEMPTS):
        try:
            return _pages(connection, resource, limit)
        except GoneError:
            # The pages' snapshot was compacted in the meantime. Start again; finally all in one page, as
            # client-go's pager does, which can't expire.
            if limit == 0:
                raise
            limit = PAGE if attempt == 0 else 0
        except (BadRequestError, ServerTroubleError) as error:
            # A server that does not know the selector answers 400; whatever else it may stumble over, it is
            # asked without, unless it asks for patience.
            if not resource.dispensable or error.retry_after is not None:
                raise
            resource = resource.widened()
    return _pages(connection, resource, limit)


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


def _pages(connection: Connection, resource: Resource, limit: int) -> Listing:
    items: dict[Key, Item] = {}
    version = 0
    proceed = ""
    while True:
        query = {**resource.selector, **({"limit": str(limit)} if limit else {})}
        if proceed:
            query["continue"] = proceed
        try:
            body = connection.get_json(resource.path, query)
        except TooLargeError:
            # Objects can be large: fewer at a time, down to one. A continue token works with any limit.
            if limit == 1:
                raise
            limit = max(1, (limit or PAGE) // 10)
            continue
        page = _page(body, resource)
        del body
        version = version or number(page.metadata.resourceVersion)
        for raw in page.items:
            key, item = read_item(bytes(raw), resource)
            # No object can have such a name: it only keeps the nameless apart.
            items[key or ("", f"(unnamed {len(items)})")] = item
        proceed = page.metadata.proceed
        if not proceed:
            return Listing(resource, version, items)
        # The page's bytes are freed before the next page arrives.
        del page


def _page(body: bytes, resource: Resource) -> _List:
    try:
        page = decoded(_List, body)
        number(page.metadata.resourceVersion)
    except (msgspec.ValidationError, ValueError) as error:
        raise NotJsonError(f"list {resource.path}: the answer is not a list of objects: {error}") from error
    except msgspec.DecodeError as error:
        raise NotJsonError(f"list {resource.path}: the answer is not JSON: {error}") from error
    if not page.kind.endswith("List"):
        raise NotJsonError(f"list {resource.path}: the answer is a {page.kind}, not a list of objects")
    return page
