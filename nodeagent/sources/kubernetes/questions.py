"""Other data of the API server: version, cluster DNS, policies.

A denial is not an error here: the result says what is not available, and contains the rest.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct, field

from nodeagent.errors import SourceError, one_line
from nodeagent.model.addresses import IPAddress
from nodeagent.sources.kubernetes.errors import NotFoundError
from nodeagent.sources.objects import api
from nodeagent.typed_values import from_json

if TYPE_CHECKING:  # the types of the answers are used where no cluster is asked
    from nodeagent.sources.kubernetes.connection import Connection


class ClusterAnswers(Struct, frozen=True):
    """What the API server answered; what is not available is empty or None, with its reason.

    Attributes:
        version: the server's version, such as v1.33.2; empty if unknown.
        dns: the ClusterIP of the cluster's DNS.
        policy_api: the version in which MutatingAdmissionPolicies are served, v1 or v1beta1; empty if they
            are not, or if that is unknown.
        why: what is not available, and why: "version", "dns" or "policies" to the reason.
    """

    version: str = ""
    dns: IPAddress | None = None
    policy_api: str = ""
    why: Mapping[str, str] = {}


_DNS_SERVICE = "/api/v1/namespaces/kube-system/services/kube-dns"
"""The name on every distribution, whatever serves it (kubeadm, k3s, kind and the clouds)."""
_POLICY_GROUP = "admissionregistration.k8s.io"
_POLICY_VERSIONS = ("v1", "v1beta1")
"""Of MutatingAdmissionPolicy, the best first: 1.36 serves v1, 1.34 and 1.35 serve v1beta1 if enabled."""
_SECONDS = 10.0
_MOST_NODES = 250
"""A Node is some 20 KB, most of it the names of images: their list stays within the largest answer."""

_Answer = TypeVar("_Answer")


class _Version(Struct):
    gitVersion: str = ""  # noqa: N815 - the API's field


class _ListMetadata(Struct):
    remaining: int | None = field(default=None, name="remainingItemCount")


class _Nodes(Struct):
    items: list[api.Node]
    metadata: _ListMetadata = field(default_factory=_ListMetadata)


def ask_cluster(connection: "Connection") -> ClusterAnswers:
    """Ask all of it; change nothing, and raise nothing."""
    why: dict[str, str] = {}

    def attempt(what: str, ask: Callable[[], _Answer]) -> _Answer | None:
        try:
            return ask()
        except (SourceError, msgspec.MsgspecError, ValueError) as error:
            why[what] = one_line(error)
            return None

    version = attempt(
        "version", lambda: from_json(connection.get_json("/version", timeout=_SECONDS), _Version).gitVersion
    )
    dns = attempt("dns", lambda: _dns(connection))
    policies = attempt("policies", lambda: _policies(connection))
    return ClusterAnswers(version or "", dns, policies or "", why)


def _dns(connection: "Connection") -> IPAddress:
    answer = connection.get_json(_DNS_SERVICE, timeout=_SECONDS)
    spec = from_json(answer, api.Service).spec
    return ip_address(spec.clusterIP or "" if spec else "")


def read_node_names(connection: "Connection") -> tuple[tuple[str, ...], int]:
    """Return the names of at most 250 Nodes, and how many more there are. Raises SourceError."""
    answer = connection.get_json("/api/v1/nodes", {"limit": str(_MOST_NODES)}, timeout=_SECONDS)
    found = from_json(answer, _Nodes)
    return tuple(node.metadata.name for node in found.items), found.metadata.remaining or 0


def _policies(connection: "Connection") -> str:
    """Return the best version in which MutatingAdmissionPolicies are served; empty if they are not."""
    from nodeagent.sources.kubernetes.discovery import served_plurals  # noqa: PLC0415 - asks a cluster

    for version in _POLICY_VERSIONS:
        with suppress(NotFoundError):
            if "mutatingadmissionpolicies" in served_plurals(connection, _POLICY_GROUP, version):
                return version
    return ""
