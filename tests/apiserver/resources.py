"""The API resources that the simulated server knows, and its refusals.

What CustomResourceDefinitions bring is no part of the table: a test serves and withdraws such rows while the
server runs.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

Object = dict[str, Any]
"""An API object as plain JSON values."""


@dataclass(frozen=True)
class Resource:
    """One kind of object; lists of `custom` ones, of a CustomResourceDefinition, state each item's type."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    custom: bool = False

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """The name in the server's messages, such as `ingresses.networking.k8s.io`."""
        return qualified(self.plural, self.group)

    @cached_property
    def base(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def key(self, namespace: str, name: str) -> str:
        """Return the place of an object among its like; lists come in this order, as from etcd."""
        return f"{namespace}/{name}" if self.namespaced else name


def qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _plural(kind: str) -> str:
    return kind.lower() + ("es" if kind.endswith("s") else "s")


_NETWORKING, _RBAC = "networking.k8s.io", "rbac.authorization.k8s.io"

RESOURCES = tuple(
    Resource(group, "v1", _plural(kind), kind, namespaced)
    for group, namespaced, kinds in (
        ("", True, "Service Event ConfigMap Secret ServiceAccount ResourceQuota Pod"),
        ("", False, "Node Namespace"),
        ("apps", True, "DaemonSet Deployment"),
        ("batch", True, "Job"),
        ("discovery.k8s.io", True, "EndpointSlice"),
        (_NETWORKING, True, "Ingress"),
        (_NETWORKING, False, "IngressClass ServiceCIDR"),
        (_RBAC, True, "Role RoleBinding"),
        (_RBAC, False, "ClusterRole ClusterRoleBinding"),
    )
    for kind in kinds.split()
)


def custom(group: str, versions: str, *kinds: str) -> tuple[Resource, ...]:
    """Return the rows of CustomResourceDefinitions: each kind in each of the versions (parted by spaces)."""
    return tuple(
        Resource(group, version, _plural(kind), kind, custom=True)
        for kind in kinds
        for version in versions.split()
    )


GATEWAY_API = custom("gateway.networking.k8s.io", "v1 v1beta1", "Gateway", "HTTPRoute")
"""The core of the Gateway API, for a test to serve."""


@dataclass
class ApiError(Exception):
    """An answer that is a Status with `status: Failure`; without a reason where the server gives none."""

    code: int
    reason: str
    message: str
    details: Object | None = None

    def body(self) -> Object:
        """Return the Status object ("API conventions: Response Status Kind")."""
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        told = {"message": self.message, "reason": self.reason, "details": self.details, "code": self.code}
        return status | {key: value for key, value in told.items() if value not in ("", None)}


def not_found(name: str, resource: Resource) -> ApiError:
    """Refuse: there is no such object. In `details`, which clients read, `kind` holds the plural."""
    details: Object = {"name": name, "group": resource.group, "kind": resource.plural}
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details)
