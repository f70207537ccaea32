"""The lines of a watch, and what each of them means."""

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from nodeagent.sources.kubernetes.errors import ApiError, NotJsonError, Status, TooLargeError
from nodeagent.sources.kubernetes.listing import decoded, number, read_item
from nodeagent.sources.kubernetes.resources import Item, Key, Resource
from nodeagent.sources.kubernetes.transport import Response
from nodeagent.typed_values import from_json

LONGEST_LINE = 4 * 1024 * 1024
"""Bytes of a line. An event holds one object, of which etcd takes 1.5 MiB (its `--max-request-bytes`)."""

_READ_AT_MOST = 65536
"""Bytes of a stream read at once; fewer are returned as soon as they are there."""

_UNNAMED = ("", "(unnamed)")
"""The key of an object without a readable name: no object can have this name."""


def lines(response: Response, count: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the lines of a watch as they arrive, without their ends; empty ones are left out.

    An unfinished last line is dropped, since half an event means nothing.

    Args:
        response: the answer, before any of its body was read; closed if it is broken.
        count: called with the bytes read over the wire.

    Raises:
        TooLargeError: a line is longer than `LONGEST_LINE`.
        ApiError: the stream is broken.
    """
    unfinished: list[bytes] = []
    size = 0
    try:
        while piece := response.read1(_READ_AT_MOST):
            count(len(piece))
            first, *others = piece.split(b"\n")
            unfinished.append(first)
            size += len(first)
            if size > LONGEST_LINE:
                raise TooLargeError(
                    f"a line has more than {LONGEST_LINE} bytes: given up; a new list is needed"
                )
            if others:
                yield from filter(None, [b"".join(unfinished), *others[:-1]])
                unfinished, size = [others[-1]], len(others[-1])
    except ApiError:
        response.close()
        raise


class Upserted(Struct, frozen=True):
    """An object was added or changed."""

    key: Key
    item: Item


class Deleted(Struct, frozen=True):
    """An object was deleted, or stopped to match the selector, at a version."""

    key: Key
    version: int


class Bookmark(Struct, frozen=True):
    """Nothing else happened up to a version (KEP-956)."""

    version: int


class Failed(Struct, frozen=True):
    """The server ends the stream: `code` is that of a Status, `body` the Status itself."""

    code: int
    body: bytes


WatchEvent = Upserted | Deleted | Bookmark | Failed


class _WatchEvent(Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(Struct):
    resourceVersion: str  # noqa: N815 - the API's field


class _Bookmark(Struct):
    metadata: _BookmarkMeta


def read_event(line: bytes, resource: Resource) -> WatchEvent | None:
    """Read one line. Pure.

    Args:
        line: the line, without its end.
        resource: what is watched.

    Returns:
        Its meaning; None for a type of event that did not exist when this was written. An object that can't
        be read counts nevertheless, as unreadable.

    Raises:
        NotJsonError: it is not an event. It may have reported a change: a new list is needed.
    """
    try:
        event = decoded(_WatchEvent, line)
        match event.type:
            case "ADDED" | "MODIFIED":
                raw = bytes(event.object)
                key, item = read_item(raw, resource)
                return Upserted(key or _UNNAMED, item)
            case "DELETED":
                key, item = read_item(bytes(event.object), resource)
                return Deleted(key or _UNNAMED, item.version)
            case "BOOKMARK":
                meta = from_json(event.object, _Bookmark).metadata
                return Bookmark(number(meta.resourceVersion))
            case "ERROR":
                return Failed(from_json(event.object, Status).code, bytes(event.object))
    except (msgspec.MsgspecError, ValueError) as error:
        text = f"watch {resource.path}: a line is not an event: {error}; a new list is needed"
        raise NotJsonError(text) from error
    return None
