"""Refusals: the Status objects of a real API server, with its codes, reasons and words.

The shapes follow k8s.io/apimachinery/pkg/api/errors, as described under "API conventions: Response Status
Kind".
"""

from dataclasses import dataclass

from .resources import Object, Resource


@dataclass
class ApiError(Exception):
    """An answer that is a Status with `status: Failure`; without a reason where the server gives none."""

    code: int
    reason: str
    message: str
    details: Object | None = None

    def __str__(self) -> str:
        """Give code, reason and message in one line."""
        return f"{self.code} {self.reason}: {self.message}"

    def body(self) -> Object:
        """Give the Status object."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}


def _about(resource: Resource, name: str) -> Object:
    """Give `details` as the server fills them: `kind` holds the plural there."""
    details: Object = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    return details | {"kind": resource.plural}


def not_found(resource: Resource, name: str) -> ApiError:
    """Refuse: there is no such object."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _about(resource, name))


def no_such_resource() -> ApiError:
    """Refuse: the group exists, the resource does not."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def no_such_namespace(name: str) -> ApiError:
    """Refuse a create: the namespace does not exist."""
    return ApiError(404, "NotFound", f'namespaces "{name}" not found', {"name": name, "kind": "namespaces"})


def already_exists(resource: Resource, name: str) -> ApiError:
    """Refuse a create: the name is taken."""
    text = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", text, _about(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    """Refuse an update: the object is not at the version (or of the uid) that the client named."""
    cause = why or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    text = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {cause}'
    return ApiError(409, "Conflict", text, _about(resource, name))


def invalid_options(kind: str, where: str, what: str, reason: str = "FieldValueForbidden") -> ApiError:
    """Refuse a query's parameters, read as ListOptions or PatchOptions."""
    details: Object = {"group": "meta.k8s.io", "kind": kind}
    details["causes"] = [{"reason": reason, "message": what, "field": where}]
    return ApiError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {where}: {what}', details)


def no_number(text: str, kind: str = "ParseInt") -> str:
    """Give Go's words for a text that is not a number."""
    return f'strconv.{kind}: parsing "{text}": invalid syntax'


def forbidden_path(user: str, verb: str, path: str) -> ApiError:
    """Refuse a path that is not an object's."""
    return ApiError(403, "Forbidden", f'forbidden: User "{user}" cannot {verb} path "{path}"', {})


def bad_request(message: str) -> ApiError:
    """Refuse a request that makes no sense."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """Refuse a client whose credentials are wrong."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, text: str) -> ApiError:
    """Refuse what RBAC does not allow; `text` says who cannot do what."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {text}", _about(resource, name))


def method_not_allowed() -> ApiError:
    """Refuse a method that the path does not have."""
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
    )


def expired(asked: int, oldest: int) -> ApiError:
    """Refuse a version whose history is gone."""
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def expired_continue() -> ApiError:
    """Refuse a continue token whose snapshot is gone."""
    text = "The provided continue parameter is too old to display a consistent list result."
    return ApiError(410, "Expired", text)
