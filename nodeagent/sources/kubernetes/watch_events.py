"""Pure: one line of a watch into what it tells."""

from dataclasses import dataclass

import msgspec
from msgspec import Struct

from nodeagent.sources.kubernetes.errors import NotJsonError
from nodeagent.sources.kubernetes.listing import Key, number, read_item
from nodeagent.sources.kubernetes.resources import Item, Resource

_UNNAMED = ("", "(unnamed)")
"""Where an object is held that does not tell its name: no object can be called so."""


@dataclass(frozen=True, slots=True)
class Stands:
    """An object was added or changed."""

    key: Key
    item: Item


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object was deleted, or stopped to match the selector, at a version."""

    key: Key
    version: int


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Nothing else happened up to a version (KEP-956)."""

    version: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The server gives the stream up: `code` is that of a Status, `body` the Status itself."""

    code: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Unknown:
    """A type of event that did not exist when this was written."""

    type: str


WatchEvent = Stands | Deleted | Bookmark | Failed | Unknown


class _Event(Struct):
    type: str
    object: msgspec.Raw


class _Version(Struct):
    resourceVersion: str  # noqa: N815 - the API's field


class _Bookmark(Struct):
    metadata: _Version


class _Status(Struct):
    code: int = 500


_event_decoder = msgspec.json.Decoder(_Event)
_bookmark_decoder = msgspec.json.Decoder(_Bookmark)
_status_decoder = msgspec.json.Decoder(_Status)


def read_event(line: bytes, resource: Resource) -> WatchEvent:
    """Reads one line.

    Args:
        line: the line, without its end.
        resource: what is watched.

    Returns:
        What it tells. An object that can't be read stands nevertheless, as unreadable.

    Raises:
        NotJsonError: it is no event at all. It may have told of a change: a new list is due.
    """
    try:
        event = _event_decoder.decode(line)
        match event.type:
            case "ADDED" | "MODIFIED":
                key, item = read_item(bytes(event.object), resource)
                return Stands(key or _UNNAMED, item)
            case "DELETED":
                key, item = read_item(bytes(event.object), resource)
                return Deleted(key or _UNNAMED, item.version)
            case "BOOKMARK":
                return Bookmark(number(_bookmark_decoder.decode(event.object).metadata.resourceVersion))
            case "ERROR":
                return Failed(_status_decoder.decode(event.object).code, bytes(event.object))
    except (msgspec.MsgspecError, ValueError) as error:
        text = f"watch {resource.path}: a line is no event: {error}; a new list is due"
        raise NotJsonError(text) from error
    return Unknown(event.type)
