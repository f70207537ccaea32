"""Lists: pages of a consistent snapshot, with continue tokens.

See "API concepts: Retrieving large results sets in chunks" and "Semantics for get and list".
"""

import base64
import binascii
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import msgspec

from . import statuses
from .resources import Resource
from .selecting import Selector
from .store import Snapshot, Store, Version

_LATEST = -1
"""The version in a token that reads on from whatever stands now (after the token before it expired)."""


class _Token(msgspec.Struct):
    """A continue token as the real server writes it."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"

    def text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a query asks for; `exact` None is whatever stands now, which must be `at_least` that version."""

    limit: int
    start: str = ""
    exact: int | None = None
    at_least: int = 0


def _token(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (msgspec.MsgspecError, binascii.Error, UnicodeDecodeError) as error:
        raise statuses.bad_request(f"continue key is not valid: {error}") from error


def revision_of(text: str) -> int:
    """Read a resourceVersion from a query; raises ApiError 400 when it is none of this server's."""
    if not (text.isascii() and text.isdigit()):
        raise statuses.bad_request(f'Invalid value: "{text}": resource version must be a number')
    return int(text)


def _asked(query: Mapping[str, str]) -> _Asked:
    limit_text = query.get("limit") or "0"
    if not limit_text.isdigit():
        raise statuses.bad_request(f'limit: Invalid value: "{limit_text}"')
    limit = int(limit_text)
    version = query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    if query.get("continue"):
        if version not in {"", "0"}:
            raise statuses.bad_request("specifying resource version is not allowed when using continue")
        token = _token(query["continue"])
        return _Asked(limit, token.start, None if token.rv == _LATEST else token.rv)
    if not version:
        if match:
            text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            raise statuses.bad_request(text)
        return _Asked(limit)
    revision = revision_of(version)
    if revision == 0:
        if match == "Exact":
            text = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
            raise statuses.bad_request(text)
        # Served from the watch cache, which pays no heed to the limit.
        return _Asked(0)
    if match == "Exact" or (limit and not match):
        return _Asked(limit, exact=revision)
    return _Asked(limit, at_least=revision)


def _snapshot(store: Store, resource: Resource, asked: _Asked, *, paged: bool) -> Snapshot:
    try:
        snapshot = store.snapshot(resource, asked.exact)
    except statuses.ApiError as error:
        if paged and error.reason == "Expired":
            raise statuses.expired_continue(_Token(_LATEST, asked.start).text()) from error
        raise
    if snapshot.revision < asked.at_least:
        raise statuses.too_large_version(asked.at_least, snapshot.revision)
    return snapshot


def page(
    store: Store, resource: Resource, namespace: str, selector: Selector, query: Mapping[str, str]
) -> bytes:
    """Give one page of a list as JSON.

    Args:
        store: where the objects are.
        resource: what is listed.
        namespace: of one namespace only; empty for all.
        selector: which objects.
        query: limit, continue, resourceVersion and resourceVersionMatch are read.

    Raises:
        ApiError: 400 for a query that makes no sense, 410 when the version is no longer known, 504 when it is
            not known yet.
    """
    asked = _asked(query)
    snapshot = _snapshot(store, resource, asked, paged="continue" in query)
    versions = snapshot.versions
    first = bisect_left(versions, asked.start, key=lambda version: version.key)
    last = len(versions)
    if namespace:
        first = max(first, bisect_left(versions, f"{namespace}/", key=lambda version: version.key))
        # "0" is the character after "/".
        last = bisect_left(versions, f"{namespace}0", key=lambda version: version.key)
    candidates = (version for version in islice(versions, first, last) if selector.matches(version.obj))
    found: list[Version] = list(islice(candidates, asked.limit or None))
    metadata: dict[str, str | int] = {"resourceVersion": str(snapshot.revision)}
    if asked.limit and len(found) == asked.limit and next(candidates, None) is not None:
        metadata["continue"] = _Token(snapshot.revision, found[-1].key + "\0").text()
        if not selector:
            # With a selector the server cannot know, and says nothing.
            metadata["remainingItemCount"] = last - first - len(found)
    head = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        msgspec.json.encode(metadata),
    )
    items = (version.typed(resource) if resource.custom else version.item for version in found)
    return head + b",".join(items) + b"]}"
