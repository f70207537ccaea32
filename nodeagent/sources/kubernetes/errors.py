"""What an API server may answer instead of what was asked, as errors that a person can act on.

None of them is ever read as "there are no objects": whoever catches one keeps what is known.
"""

from nodeagent.errors import SourceError


class ApiError(SourceError):
    """The root of what can go wrong between this process and the API server.

    Attributes:
        retry_after: seconds that the server asks to wait before the next try; None where it says nothing.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class UnreachableError(ApiError):
    """No connection, no answer in time, or the connection broke: nothing is known of the API's state."""


class UnauthorizedError(ApiError):
    """401, or 403 as system:anonymous: the credentials are wrong, expired or absent."""


class ForbiddenError(ApiError):
    """403: the credentials are good, RBAC does not allow the request."""


class NotFoundError(ApiError):
    """404: no such object, or no such resource on this server."""


class BadRequestError(ApiError):
    """400: the server can't make sense of the request, such as a field selector it does not know."""


class AlreadyExistsError(ApiError):
    """409 with reason AlreadyExists: somebody else created the object first."""


class ConflictError(ApiError):
    """409: the object is another than the one that was read: read it again, and decide anew."""


class GoneError(ApiError):
    """410, or a resourceVersion from the server's future: only a new list helps."""


class ServerTroubleError(ApiError):
    """Any other refusal, most often 429 or 5xx: try again later.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, text: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(text, retry_after)
        self.status = status


class TooLargeError(ApiError):
    """The answer, or a line of a watch, is larger than is read into memory: no part of it counts."""


class NotJsonError(ApiError):
    """The answer is not JSON: most likely something else than an API server answered."""


class NotAListError(ApiError):
    """The answer is JSON, but no list of objects: it must never pass for an empty one."""
