"""What an API server may answer instead of the requested data, as errors that a person can act on.

None ever means "there are no objects": the code that catches one keeps what is known. Codes and reasons: "API
conventions: Response Status Kind" and "API concepts: Resource versions".
"""

import json
import ssl
from collections.abc import Mapping
from http.client import BadStatusLine, IncompleteRead, RemoteDisconnected
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.errors import SourceError, one_line
from nodeagent.typed_values import from_json

_ANONYMOUS = 'User "system:anonymous"'
_LONGEST_QUOTE = 300
"""Characters of a server's own words that an error repeats."""
_RENEW = "check the kubeconfig's token, tokenFile, certificate or exec plugin, or in a pod the ServiceAccount"
NO_API_SERVER = "check that this is an API server, and not a proxy or a login page in front of it"


class ApiError(SourceError):
    """An error between this process and the API server; `retry_after` are the seconds that it asks to wait.

    `by_api_server` says whether the answer is an API server's, and not of a proxy in front of it.
    """

    by_api_server = False

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class UnreachableError(ApiError):
    """No connection, no answer in time, or the connection was lost: nothing is known of the API's state."""


class NoConnectionError(UnreachableError):
    """There is not even a connection: no way of asking would help."""


class UnauthorizedError(ApiError):
    """401, or 403 as system:anonymous: the credentials are wrong, expired or missing."""


class ForbiddenError(ApiError):
    """403: the credentials are good, RBAC does not allow the request."""


class NotFoundError(ApiError):
    """404: no such object or resource, or a proxy answered.

    `object_name` is that of the object that the API server itself says does not exist; else empty.
    """

    object_name = ""


class AlreadyExistsError(ApiError):
    """409 with reason AlreadyExists: another program created the object first."""


class GoneError(ApiError):
    """410, or a resourceVersion from the server's future: only a new list helps."""


class ServerTroubleError(ApiError):
    """Any other rejection, most often 429 or 5xx, or 409 after a change: try again later."""


class TooLargeError(ApiError):
    """The answer, or a line of a watch, is larger than the limit for memory: no part of it counts."""


class NotJsonError(ApiError):
    """The answer is not JSON, or not a list where one was requested: it must never count as an empty one."""


class ApiRequest(Struct, frozen=True):
    """One request, by its Kubernetes verb; as text, as its errors name it.

    `server` is host and port, as a person would look for them, and the proxy in front of it, if any.
    `headers` are those besides the client's own, `body` JSON values.
    """

    verb: str
    path: str
    server: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.path} at {self.server}"


class ApiPath(Struct, frozen=True):
    """What a path is about (API concepts: Resource URIs); fields that it does not name are empty."""

    group: str
    namespace: str
    resource: str
    name: str
    subresource: str = ""

    @classmethod
    def parse(cls, path: str) -> "ApiPath":
        """Read `/api/v1/...` and `/apis/GROUP/VERSION/...`."""
        segments = path.strip("/").split("/")
        group = "" if segments[0] == "api" else (segments[1:2] or [""])[0]
        rest = segments[2:] if segments[0] == "api" else segments[3:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name, subresource = [*rest, "", "", ""][:3]
        return cls(group, namespace, resource, name, subresource)


class _Cause(Struct):
    reason: str = ""
    message: str = ""


class _Details(Struct):
    retryAfterSeconds: float | None = None  # noqa: N815 - the API's field
    causes: list[_Cause] | None = None
    name: str = ""


class Status(Struct):
    """meta/v1 Status: in the body of an error answer, in an ERROR event, at the end of a program in a pod."""

    status: str = ""
    message: str = ""
    reason: str = ""
    details: _Details | None = None
    code: int = 500


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: ApiError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    410: GoneError,
}
_NEXT_STEP = {
    410: "; a new list is needed",
    429: "; the server is busy: try again",
    5: "; try again, and if it fails again, see the API server's log",
}


def refusal(request: ApiRequest, status: int, body: bytes, retry_after: str = "") -> ApiError:
    """Return the error for an answer, by its HTTP status or an ERROR event's code. Pure.

    The words of a `body` that is a Status are repeated; any other, as a proxy's page, is ignored.
    `retry_after` is the header of that name, in seconds, as API servers write it.
    """
    try:
        answer = from_json(body, Status)
    except msgspec.MsgspecError:
        answer = Status()
    words = answer.message[:_LONGEST_QUOTE] or "the server gives no reason"
    details = answer.details or _Details()
    if any(cause.reason == "ResourceVersionTooLarge" for cause in details.causes or ()):
        status = 410
    kind = _BY_STATUS.get(status, ServerTroubleError)
    match status:
        case 400:
            words = f"the server does not understand the request: {words}"
        case 401:
            words = f"the server does not accept these credentials; {_RENEW}"
        case 403 if _ANONYMOUS in answer.message:
            kind, words = UnauthorizedError, f"the request had no credentials ({words}); {_RENEW}"
        case 403:
            words += f"; grant it with {missing_rule(request)}"
        case 301 | 302 | 303 | 307 | 308 | 404 if not answer.status:
            words += f"; {NO_API_SERVER}"
        case 409 if answer.reason == "AlreadyExists":
            kind = AlreadyExistsError
    words += _NEXT_STEP.get(status // 100 if status >= 500 else status, "")
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    error = kind(f"{request}: {status}: {words}", details.retryAfterSeconds if seconds is None else seconds)
    error.by_api_server = answer.status == "Failure"
    if isinstance(error, NotFoundError) and answer.reason == "NotFound":
        error.object_name = details.name
    return error


def missing_rule(request: ApiRequest) -> str:
    """Return the RBAC rule that allows a request, as in a Role's YAML."""
    about = ApiPath.parse(request.path)
    if not about.resource:
        rule = f"nonResourceURLs: {json.dumps([request.path])}, verbs: {json.dumps([request.verb])}"
        return f"a ClusterRole: {{{rule}}}"
    resource = f"{about.resource}/{about.subresource}" if about.subresource else about.resource
    verbs = ["list", "watch"] if request.verb in {"list", "watch"} else [request.verb]
    role = f"a Role in namespace {about.namespace}" if about.namespace else "a ClusterRole"
    rule = f"apiGroups: {json.dumps([about.group])}, resources: {json.dumps([resource])}"
    return f"{role}: {{{rule}, verbs: {json.dumps(verbs)}}}"


_FAILURES = (
    (IncompleteRead, "the connection was lost in the middle of the answer"),
    (TimeoutError, "no answer in time"),
    (RemoteDisconnected, "the server closed the connection without an answer"),
    (BadStatusLine, "the answer is not HTTP"),
)


def failure_words(error: BaseException) -> str:
    """Return a failure of the network in the fewest words that still identify it."""
    cause: BaseException | None = error
    while cause is not None:
        for kind, words in _FAILURES:
            if isinstance(cause, kind):
                return words
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return "the server does not speak TLS there"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"certificate verify failed: {cause.verify_message.removesuffix('.')}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {(cause.reason or 'the server hung up').lower().replace('_', ' ')}"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        error, cause = cause, cause.__cause__ or cause.__context__
    return one_line(error)
