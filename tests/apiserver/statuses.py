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


def not_found(name: str, resource: Resource) -> ApiError:
    """Refuse: there is no such object. In `details`, which clients read, `kind` holds the plural."""
    details: Object = {"name": name, "group": resource.group, "kind": resource.plural}
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details)


def no_such_resource() -> ApiError:
    """Refuse: the group exists, the resource does not."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def invalid_options(where: str, what: str) -> ApiError:
    """Refuse a query's parameter, read as one of ListOptions."""
    details: Object = {"group": "meta.k8s.io", "kind": "ListOptions"}
    details["causes"] = [{"reason": "FieldValueForbidden", "message": what, "field": where}]
    return ApiError(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {where}: {what}', details)


def bad_request(message: str) -> ApiError:
    """Refuse a request that makes no sense."""
    return ApiError(400, "BadRequest", message)


def forbidden(message: str) -> ApiError:
    """Refuse what RBAC does not allow."""
    return ApiError(403, "Forbidden", message)


def expired(asked: int, oldest: int) -> ApiError:
    """Refuse a version whose history is gone."""
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")
