"""The control endpoint, by which a benchmark changes the objects of a server in another process.

All requests are POST with a JSON object as body; answers are JSON. They pass no access check.

    POST /_control/apply     {"objects": [...]}                      create or replace
    POST /_control/replace   {"resource": "ingresses", "objects": [...]}
    POST /_control/delete    {"resource": "services", "name": "web", "namespace": "default"}
"""

from collections.abc import Callable

import msgspec

from . import replies, statuses
from .replies import Reply
from .resources import Object
from .store import Store

PREFIX = "/_control/"


def answer(store: Store, path: str, body: bytes) -> Reply:
    """Do what a control request asks for.

    Args:
        store: the server's objects.
        path: the request's path.
        body: the request's body.

    Returns:
        200 with the revision that came of it; 400 with the error's text.
    """
    try:
        _ACTIONS[path.removeprefix(PREFIX)](store, msgspec.json.decode(body, type=Object))
    except (msgspec.MsgspecError, statuses.ApiError, KeyError, TypeError) as error:
        return replies.json_reply(400, {"error": repr(error)})
    return replies.json_reply(200, {"revision": store.revision})


def _apply(store: Store, asked: Object) -> None:
    for obj in asked["objects"]:
        store.apply(obj)


def _replace(store: Store, asked: Object) -> None:
    store.replace_all(asked["resource"], asked["objects"])


def _delete(store: Store, asked: Object) -> None:
    store.delete(asked["resource"], asked["name"], asked.get("namespace", ""))


_ACTIONS: dict[str, Callable[[Store, Object], None]] = {
    "apply": _apply,
    "replace": _replace,
    "delete": _delete,
}
