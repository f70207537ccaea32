"""The lines of a watch, and what each of them means."""

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from nodeagent.sources.kubernetes.connection import Stream
from nodeagent.sources.kubernetes.errors import (
    ApiError,
    ApiRequest,
    NotJsonError,
    Status,
    TooLargeError,
    refusal,
)
from nodeagent.sources.kubernetes.listing import ListMeta, decoded, number, read_item
from nodeagent.sources.kubernetes.resources import Item, Key, Resource
from nodeagent.typed_values import from_json

LONGEST_LINE = 4 * 1024 * 1024
"""Bytes of a line. An event holds one object, of which etcd takes 1.5 MiB (its `--max-request-bytes`)."""

_READ_AT_MOST = 65536
"""Bytes of a stream read at once; fewer are returned as soon as they are there."""

_UNNAMED = ("", "(unnamed)")
"""The key of an object without a readable name: no object can have this name."""


def lines(response: Stream, count: Callable[[int], None]) -> Iterator[bytes]:
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


class WatchEvent(Struct, frozen=True):
    """What a line reports: up to a version, nothing else happened (KEP-956).

    Attributes:
        version: that version.
        key: the object that was added, changed or deleted, or stopped to match the selector; None for none.
        item: the object as it is now; None if it is gone.
    """

    version: int
    key: Key | None = None
    item: Item | None = None


class _WatchEvent(Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(Struct):
    metadata: ListMeta


def read_event(line: bytes, resource: Resource, request: ApiRequest) -> WatchEvent | None:
    """Read one line. Pure.

    Args:
        line: the line, without its end.
        resource: what is watched.
        request: the watch, for errors.

    Returns:
        Its meaning; None for a type of event that did not exist when this was written. An object that can't
        be read counts nevertheless, as unreadable.

    Raises:
        NotJsonError: it is not an event. It may have reported a change.
        ApiError: another one of its kinds: the server ends the stream.
    """
    try:
        event = decoded(_WatchEvent, line)
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                key, item = read_item(bytes(event.object), resource)
                return WatchEvent(item.version, key or _UNNAMED, None if event.type == "DELETED" else item)
            case "BOOKMARK":
                meta = from_json(event.object, _Bookmark).metadata
                return WatchEvent(number(meta.resourceVersion))
            case "ERROR":
                raise refusal(request, from_json(event.object, Status).code, bytes(event.object))
    except (msgspec.MsgspecError, ValueError) as error:
        text = f"watch {resource.path}: a line is not an event: {error}; a new list is needed"
        raise NotJsonError(text) from error
    return None
