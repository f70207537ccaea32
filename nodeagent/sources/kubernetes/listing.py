"""What the answers about a collection mean: its list, in pages, and the lines of its watch.

"API concepts: Retrieving large results sets in chunks". Anything else than a proper list is an error, and
never means that there are no objects.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct, field

from nodeagent.model.objects import Unreadable
from nodeagent.sources.kubernetes import errors
from nodeagent.sources.kubernetes.resources import Key, Resource
from nodeagent.sources.objects.api import DecodingError
from nodeagent.sources.objects.decoding import describe
from nodeagent.typed_values import from_json, intern, plain_words

if TYPE_CHECKING:  # a list is read where there is a cluster
    from nodeagent.sources.kubernetes.connection import Connection

_LOG = logging.getLogger(__name__)

PAGE = 500
"""Objects per page, as in kubectl and client-go: about 1 MB of Ingresses, so that memory stays low."""


class Listing(Struct, frozen=True):
    """The objects of a collection that are used or can't be read, and from which version to watch."""

    version: int
    items: Mapping[Key, object]


class _Meta(Struct):
    """What an object, a list and a bookmark say of themselves."""

    resourceVersion: str  # noqa: N815 - the API's field
    name: str = ""
    namespace: str = ""
    proceed: str = field(default="", name="continue")


class _Head(Struct):
    metadata: _Meta


class _List(_Head):
    kind: str
    items: list[msgspec.Raw]


_Decoded = TypeVar("_Decoded")

_DEEPEST = 100
"""Levels of an answer: no field that is read is half as deep, and API servers accept up to 10,000."""
_BRACKET_OR_TEXT = re.compile(rb'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


def _decoded(expected: type[_Decoded], body: bytes) -> _Decoded:
    """Decode an answer, without what is nested too deep for the decoder: it would hide all other objects.

    Anyone can write such an object if a custom resource accepts any field.
    """
    try:
        return from_json(body, expected)
    except RecursionError:
        return from_json(_without_depths(body), expected)


def _without_depths(body: bytes) -> bytes:
    """Return the JSON, with null in place of all that is nested too deep. Pure; linear in its length."""
    pieces = []
    depth = begin = 0
    for token in _BRACKET_OR_TEXT.finditer(body):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == _DEEPEST + 1:
                    pieces += [body[begin : token.start()], b"null"]
            case b"}" | b"]":
                if depth == _DEEPEST + 1:
                    begin = token.end()
                depth -= 1
    return b"".join([*pieces, body[begin:]])


def read_list(connection: "Connection", resource: Resource) -> Listing:
    """Read a collection: compressed, else uncompressed. Raises ApiError; nothing read so far counts then.

    No resourceVersion is sent: the answer is the newest ("API concepts: Semantics for get and list").
    """
    try:
        return _pages(connection, resource, PAGE, compressed=True)
    except Exception as error:
        if not _may_pass(error):
            raise
        failure = error
    # If the pages' snapshot was compacted: all in one page, as client-go's pager does, which can't expire.
    limit = 0 if isinstance(failure, errors.GoneError) else PAGE
    listing = _pages(connection, resource, limit, compressed=False)
    fields = {"resource": resource.name, "err": str(failure)}
    _LOG.info("Could not read a list at first; a slower way worked", extra={"fields": fields})
    return listing


def _may_pass(error: Exception) -> bool:
    """Whether the server might answer the same request, made in a slower way."""
    if not isinstance(error, errors.ApiError):
        return True
    passing = (errors.GoneError, errors.NotJsonError, errors.ServerTroubleError, errors.UnreachableError)
    lasting = error.retry_after is not None or isinstance(error, errors.NoConnectionError)
    return isinstance(error, passing) and not lasting


def _read_item(raw: bytes, resource: Resource) -> tuple[int, Key | None, object | None]:
    """Return an object's version, its key if it can be read, and its value: None if it is not used."""

    def unreadable(why: object) -> Unreadable:
        return Unreadable(describe(raw, resource.kind), str(why), decisive=resource.kind == "Node")

    try:
        meta = from_json(raw, _Head).metadata
        version = _number(meta.resourceVersion)
    except (msgspec.MsgspecError, ValueError) as error:
        return 0, None, unreadable(error)
    if not meta.name:
        return 0, None, unreadable("it has no name")
    key = (intern(meta.namespace), intern(meta.name))
    try:
        return version, key, resource.decode(raw)
    except DecodingError as error:
        return version, key, unreadable(error)


def _number(version: str) -> int:
    """Read a resourceVersion; raises ValueError if it is not a decimal number."""
    if not (version.isascii() and version.isdigit()):
        raise ValueError(f"resourceVersion {version!r} is not a number")
    return int(version)


def _pages(connection: "Connection", resource: Resource, limit: int, *, compressed: bool) -> Listing:
    items: dict[Key, object] = {}
    version = 0
    proceed, seen = "", set[str]()
    while True:
        query = {**resource.selector, **({"limit": str(limit)} if limit else {})}
        if proceed:
            query["continue"] = proceed
        try:
            body = connection.get_json(resource.path, query, compressed=compressed)
        except errors.TooLargeError:
            # Objects can be large: fewer at a time, down to one. A continue token works with any limit.
            if limit == 1:
                raise
            limit = max(1, (limit or PAGE) // 10)
            continue
        page = _page(body, resource)
        del body
        version = version or _number(page.metadata.resourceVersion)
        for raw in page.items:
            _, key, value = _read_item(bytes(raw), resource)
            if value is not None:
                # No object can have such a name: it only keeps the nameless apart.
                items[key or ("", f"(unnamed {len(items)})")] = value
        proceed = page.metadata.proceed
        if not proceed:
            return Listing(version, items)
        if proceed in seen:
            problem = "the answer repeats an earlier `continue` token, so the list would never end"
            raise errors.NotJsonError(f"list {resource.path}: {problem}")
        seen.add(proceed)
        # The page's bytes are freed before the next page arrives.
        del page


def _page(body: bytes, resource: Resource) -> _List:
    try:
        page = _decoded(_List, body)
        _number(page.metadata.resourceVersion)
    except (msgspec.MsgspecError, ValueError) as error:
        why = f"the answer is not a list of objects: {plain_words(error)}"
        raise errors.NotJsonError(f"list {resource.path}: {why}; {errors.NO_API_SERVER}") from error
    if not page.kind.endswith("List"):
        why = f"the answer is a {page.kind}, not a list of objects"
        raise errors.NotJsonError(f"list {resource.path}: {why}; {errors.NO_API_SERVER}")
    return page


LONGEST_LINE = 4 * 1024 * 1024
"""Bytes of a line. An event holds one object, of which etcd takes 1.5 MiB (its `--max-request-bytes`)."""
_UNNAMED = ("", "(unnamed)")
"""The key of an object without a readable name: no object can have this name."""


def lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a watch as they arrive, except empty ones and an unfinished last one.

    Raises TooLargeError if one is longer than `LONGEST_LINE`.
    """
    unfinished: list[bytes] = []
    size = 0
    for piece in pieces:
        first, *others = piece.split(b"\n")
        unfinished.append(first)
        size += len(first)
        if size > LONGEST_LINE:
            raise errors.TooLargeError(f"a line of over {LONGEST_LINE} bytes: given up; a new list is needed")
        if others:
            yield from filter(None, [b"".join(unfinished), *others[:-1]])
            unfinished, size = [others[-1]], len(others[-1])


WatchEvent = tuple[int, Key | None, object | None]
"""What a line reports: a version up to which nothing else happened (KEP-956); the key of the object that was
added, changed or deleted, or stopped to match the selector; its value now, None if it is gone or not used."""


class _WatchEvent(Struct):
    type: str
    object: msgspec.Raw


def read_event(line: bytes, resource: Resource, request: errors.ApiRequest) -> WatchEvent:
    """Return what a line means: nothing, if its type did not exist when this was written.

    Raises NotJsonError if it is not an event, another ApiError if the server ends the stream.
    """
    try:
        event = _decoded(_WatchEvent, line)
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                version, key, value = _read_item(bytes(event.object), resource)
                return version, key or _UNNAMED, None if event.type == "DELETED" else value
            case "BOOKMARK":
                meta = from_json(event.object, _Head).metadata
                return _number(meta.resourceVersion), None, None
            case "ERROR":
                raise errors.refusal(
                    request, from_json(event.object, errors.Status).code, bytes(event.object)
                )
    except (msgspec.MsgspecError, ValueError) as error:
        problem = f"watch {resource.path}: a line is not an event: {error}; a new list is needed"
        raise errors.NotJsonError(problem) from error
    return 0, None, None
