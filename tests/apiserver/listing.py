"""Lists: pages of a consistent snapshot, with continue tokens.

See "API concepts: Retrieving large results sets in chunks" and "Semantics for get and list".
"""

import base64
from collections.abc import Mapping
from itertools import islice

import msgspec

from . import statuses
from .history import Version
from .resources import Resource
from .selecting import Selector
from .store import Store


class _Token(msgspec.Struct):
    """A continue token as the real server writes it."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"

    def text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def _token(text: str) -> _Token:
    return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)


def page(
    store: Store, resource: Resource, namespace: str, selector: Selector, query: Mapping[str, str]
) -> bytes:
    """Give one page of a list as JSON: of one namespace, or of all (empty).

    Raises:
        ApiError: 410 when the token's version is no longer known.
    """
    limit = int(query.get("limit") or 0)
    # Helm's client lists from 0: any state will do.
    assert query.get("resourceVersion", "0") in {"", "0"}, "no list of another version is imitated"
    token = _token(query["continue"]) if query.get("continue") else None
    try:
        snapshot = store.snapshot(resource, token.rv if token else None)
    except statuses.ApiError as error:
        text = "The provided continue parameter is too old to display a consistent list result."
        raise statuses.ApiError(410, "Expired", text) from error
    start, inside = token.start if token else "", f"{namespace}/" if namespace else ""
    rest = [one for one in snapshot.versions if one.key >= start and one.key.startswith(inside)]
    candidates = (version for version in rest if selector.matches(version.obj))
    found: list[Version] = list(islice(candidates, limit or None))
    metadata: dict[str, str | int] = {"resourceVersion": str(snapshot.revision)}
    if limit and len(found) == limit and next(candidates, None) is not None:
        metadata["continue"] = _Token(snapshot.revision, found[-1].key + "\0").text()
        if not selector:
            # With a selector the server cannot know, and says nothing.
            metadata["remainingItemCount"] = len(rest) - len(found)
    head = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        msgspec.json.encode(metadata),
    )
    items = (version.typed(resource) if resource.custom else version.item for version in found)
    return head + b",".join(items) + b"]}"
