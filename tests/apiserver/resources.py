"""The table of API resources that the simulated server knows: one row each.

A row says what differs between resources of a real kube-apiserver as far as a client can see it. What
CustomResourceDefinitions bring is no part of it: a test serves and withdraws such rows while the server runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Object = dict[str, Any]
"""An API object as plain JSON values."""


@dataclass(frozen=True)
class Resource:
    """One kind of object and how the server treats it.

    Attributes:
        group: API group, empty for the core group.
        plural: name in paths and in RBAC rules.
        fields: field labels for selectors beside metadata.name and metadata.namespace, each with the value
            an object has that does not carry the field.
        custom: served by a CustomResourceDefinition: then the items of a list carry kind and apiVersion,
            while those of built-in types do not.
        connects: subresources that lead to the node (exec, log).
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)
    custom: bool = False
    connects: tuple[str, ...] = ()

    @cached_property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """The name in the server's messages, such as `ingresses.networking.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def base(self) -> str:
        """The path above its objects, such as `/apis/networking.k8s.io/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def key(self, namespace: str, name: str) -> str:
        """Give the place of an object among its like; lists come in this order, as from etcd."""
        return f"{namespace}/{name}" if self.namespaced else name


_RBAC = "rbac.authorization.k8s.io"

RESOURCES: tuple[Resource, ...] = (
    Resource(
        "",
        "v1",
        "services",
        "Service",
        fields={"spec.type": "ClusterIP"},
    ),
    Resource("", "v1", "nodes", "Node", namespaced=False),
    Resource("", "v1", "namespaces", "Namespace", namespaced=False),
    Resource("", "v1", "events", "Event"),
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "serviceaccounts", "ServiceAccount"),
    Resource("", "v1", "resourcequotas", "ResourceQuota"),
    Resource(
        "",
        "v1",
        "pods",
        "Pod",
        fields={"spec.nodeName": ""},
        connects=("exec", "log"),
    ),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("batch", "v1", "jobs", "Job"),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Resource("networking.k8s.io", "v1", "ingresses", "Ingress"),
    Resource("networking.k8s.io", "v1", "ingressclasses", "IngressClass", namespaced=False),
    Resource("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", namespaced=False),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
)


def custom(group: str, versions: str, *kinds: str) -> tuple[Resource, ...]:
    """Give the rows of CustomResourceDefinitions: each kind in each of the versions (parted by spaces).

    A kind's plural is its name in lower case with an `s`.
    """
    return tuple(
        Resource(group, version, f"{kind.lower()}s", kind, custom=True)
        for kind in kinds
        for version in versions.split()
    )


GATEWAY_API = custom("gateway.networking.k8s.io", "v1 v1beta1", "Gateway", "HTTPRoute")
"""The core of the Gateway API, for a test to serve."""
