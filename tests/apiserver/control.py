"""The control endpoint: what a test in another process does to the server.

All requests are POST with a JSON object as body, or GET; answers are JSON. They pass no access check.

    POST /_control/apply     {"objects": [...]}                      create or replace
    POST /_control/replace   {"resource": "ingresses", "objects": [...]}
    POST /_control/delete    {"resource": "services", "name": "web", "namespace": "default"}
    POST /_control/compact   {}
    POST /_control/faults    {"fault": "Answer", "with": {"code": 503}, "path": "*", "verbs": [], "times": 1}
    POST /_control/clear     {}                                      disarm all faults
    POST /_control/end       {"how": "clean" | "drop" | "reset"}     end all streams
    POST /_control/options   {"bookmark_interval": 1.0, ...}
    POST /_control/access    {"tokens": {"TOKEN": "USER"}, "rbac": "YAML"}
    POST /_control/wait      {"watch": "ingresses", "timeout": 5.0, "revision": 1234}
    GET  /_control/traffic
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from . import access, faults, replies, statuses
from .replies import Reply
from .watches import Ending

if TYPE_CHECKING:
    from .server import ApiServer

PREFIX = "/_control/"

_FAULTS: dict[str, type[faults.Fault]] = {
    kind.__name__: kind
    for kind in (
        faults.Answer,
        faults.Delay,
        faults.Disconnect,
        faults.CutBody,
        faults.CutLine,
        faults.SplitLines,
        faults.Duplicate,
        faults.Reorder,
        faults.Silence,
        faults.ErrorLine,
    )
}


class _Apply(msgspec.Struct, forbid_unknown_fields=True):
    objects: list[dict[str, Any]]


class _Replace(msgspec.Struct, forbid_unknown_fields=True):
    resource: str
    objects: list[dict[str, Any]]


class _Delete(msgspec.Struct, forbid_unknown_fields=True):
    resource: str
    name: str
    namespace: str = ""


class _Fault(msgspec.Struct, forbid_unknown_fields=True):
    fault: str
    values: dict[str, Any] = msgspec.field(default_factory=dict, name="with")
    path: str = "*"
    verbs: list[str] = []
    times: int | None = 1


class _End(msgspec.Struct, forbid_unknown_fields=True):
    how: Ending = Ending.CLEAN


class _Access(msgspec.Struct, forbid_unknown_fields=True):
    tokens: dict[str, str] = {}
    rbac: str | None = None


class _Wait(msgspec.Struct, forbid_unknown_fields=True):
    watch: str
    timeout: float = 5.0
    count: int = 1
    revision: int | None = None


class _Empty(msgspec.Struct, forbid_unknown_fields=True):
    pass


def answer(api: "ApiServer", method: str, path: str, body: bytes) -> Reply:
    """Do what a control request asks for.

    Args:
        api: the server.
        method: the HTTP method.
        path: the request's path.
        body: the request's body.

    Returns:
        200 with what came of it; 400 with the error's text; 404 for an unknown path; 504 for a wait in vain.
    """
    if method == "GET" and path == f"{PREFIX}traffic":
        return replies.json_reply(200, _traffic(api))
    action = _ACTIONS.get(path.removeprefix(PREFIX))
    if action is None or method != "POST":
        return replies.json_reply(404, {"error": f"no such control: {method} {path}"})
    try:
        return replies.json_reply(200, action(api, body or b"{}"))
    except TimeoutError as error:
        return replies.json_reply(504, {"error": str(error)})
    except (msgspec.MsgspecError, statuses.ApiError, KeyError, TypeError) as error:
        return replies.json_reply(400, {"error": repr(error)})


def _traffic(api: "ApiServer") -> dict[str, object]:
    return {
        "requests": [
            {"verb": seen.verb, "path": seen.path, "query": seen.query} for seen in api.traffic.seen()
        ],
        "bytesSent": api.traffic.bytes_sent,
        "openWatches": [watch.resource for watch in api.traffic.watches()],
        "revision": api.store.revision,
    }


def _apply(api: "ApiServer", body: bytes) -> object:
    for obj in msgspec.json.decode(body, type=_Apply).objects:
        api.store.apply(obj)
    return {"revision": api.store.revision}


def _replace(api: "ApiServer", body: bytes) -> object:
    asked = msgspec.json.decode(body, type=_Replace)
    return {"revision": api.store.replace_all(asked.resource, asked.objects)}


def _delete(api: "ApiServer", body: bytes) -> object:
    asked = msgspec.json.decode(body, type=_Delete)
    return api.store.delete(asked.resource, asked.name, asked.namespace)


def _compact(api: "ApiServer", body: bytes) -> object:
    msgspec.json.decode(body, type=_Empty)
    return {"revision": api.compact()}


def _arm(api: "ApiServer", body: bytes) -> object:
    asked = msgspec.json.decode(body, type=_Fault)
    fault: faults.Fault = msgspec.convert(asked.values, _FAULTS[asked.fault])
    api.faults.add(fault, path=asked.path, verbs=asked.verbs, times=asked.times)
    return {}


def _clear(api: "ApiServer", body: bytes) -> object:
    msgspec.json.decode(body, type=_Empty)
    api.faults.clear()
    return {}


def _end(api: "ApiServer", body: bytes) -> object:
    api.end_watches(msgspec.json.decode(body, type=_End).how)
    return {}


def _options(api: "ApiServer", body: bytes) -> object:
    changed = {**msgspec.to_builtins(api.options), **msgspec.json.decode(body, type=dict[str, Any])}
    checked = msgspec.convert(changed, type(api.options))
    for name in changed:
        setattr(api.options, name, getattr(checked, name))
    return changed


def _access(api: "ApiServer", body: bytes) -> object:
    asked = msgspec.json.decode(body, type=_Access)
    for token, user in asked.tokens.items():
        api.access.require_token(token, user)
    if asked.rbac is not None:
        api.access.allow_only(access.rules_from_yaml(asked.rbac))
    return {}


def _wait(api: "ApiServer", body: bytes) -> object:
    asked = msgspec.json.decode(body, type=_Wait)
    api.traffic.wait_for_watch(asked.watch, asked.timeout, asked.count)
    if asked.revision is not None:
        api.traffic.wait_for_delivery(asked.watch, asked.revision, asked.timeout)
    return {}


_ACTIONS: dict[str, Callable[["ApiServer", bytes], object]] = {
    "apply": _apply,
    "replace": _replace,
    "delete": _delete,
    "compact": _compact,
    "faults": _arm,
    "clear": _clear,
    "end": _end,
    "options": _options,
    "access": _access,
    "wait": _wait,
}
