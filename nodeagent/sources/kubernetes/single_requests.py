"""Single requests: about the server, and about nodeagent's own workloads."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from nodeagent.errors import SourceError, one_line
from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    ServerTroubleError,
    UnauthorizedError,
    UnreachableError,
)
from nodeagent.sources.kubernetes.resources import object_path, served_plurals, unread_kinds
from nodeagent.sources.objects import api
from nodeagent.typed_values import from_json

if TYPE_CHECKING:  # the types of the answers are used where no cluster is asked
    from nodeagent.sources.kubernetes.connection import Connection


class ClusterAnswers(Struct, frozen=True):
    """What the API server answered; what is not available is empty or None, with its reason.

    Attributes:
        version: the server's version, such as v1.33.2.
        dns: the ClusterIP of the cluster's DNS.
        policy_api: the best version in which MutatingAdmissionPolicies are served; empty if they are not.
        unread: the served kinds that claim hostnames and are not read.
        why: what is not available, by the names above, and why.
    """

    version: str = ""
    dns: IPAddress | None = None
    policy_api: str = ""
    unread: tuple[str, ...] = ()
    why: Mapping[str, str] = {}


_DNS_SERVICE = "/api/v1/namespaces/kube-system/services/kube-dns"
"""The name on every distribution, whatever serves it (kubeadm, k3s, kind and the clouds)."""
_POLICY_GROUP = "admissionregistration.k8s.io"
_POLICY_VERSIONS = ("v1", "v1beta1")
"""Of MutatingAdmissionPolicy, the best first: 1.36 serves v1, 1.34 and 1.35 serve v1beta1 if enabled."""
_SECONDS = 10.0


class _Version(Struct):
    gitVersion: str = ""  # noqa: N815 - the API's field


def ask_cluster(connection: "Connection") -> ClusterAnswers:
    """Ask all of it. Raises nothing: the result says what is not available."""
    answers: dict[str, Any] = {}
    why: dict[str, str] = {}
    questions = {"version": _version, "dns": _dns, "policy_api": _policies, "unread": unread_kinds}
    for what, ask in questions.items():
        try:
            answers[what] = ask(connection)
        except ForbiddenError:
            why[what] = "this user may not read it"
        except (SourceError, msgspec.MsgspecError, ValueError) as error:
            why[what] = one_line(error)
    return ClusterAnswers(**answers, why=why)


def _version(connection: "Connection") -> str:
    return from_json(connection.get_json("/version", timeout=_SECONDS), _Version).gitVersion


def _dns(connection: "Connection") -> IPAddress:
    answer = connection.get_json(_DNS_SERVICE, timeout=_SECONDS)
    spec = from_json(answer, api.Service).spec
    return ip_address(spec.clusterIP or "" if spec else "")


def _policies(connection: "Connection") -> str:
    for version in _POLICY_VERSIONS:
        with suppress(NotFoundError):
            if "mutatingadmissionpolicies" in served_plurals(connection, _POLICY_GROUP, version):
                return version
    return ""


GOING_SECONDS = 20.0
"""For all of an ending agent's attempts to learn why it ends: an API server may just be restarting."""
_ATTEMPT_SECONDS = 5.0
_FOREGROUND = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
"""The object stays, with a deletionTimestamp, until the garbage collector has deleted its pods."""
_BETWEEN_LOOKS = 1.0


def is_going(connection: "Connection", daemonset: ObjectRef) -> bool:
    """Whether it is deleted or being deleted; an upgrade or a restart of the agent is neither.

    `kubectl delete -k` takes the right to ask before, or at the same time; an upgrade never does. So refusals
    in a row for 20 seconds mean that, too: an API server that is just starting refuses for less. A proxy's
    refusal is none. RBAC: get this DaemonSet by name.

    Raises SourceError if the API did not answer within 20 seconds.
    """
    deadline = time.monotonic() + GOING_SECONDS
    only_refused = True
    while True:
        # The other end of a kept connection may have died without a word.
        connection.close()
        try:
            answer = connection.get_json(object_path(daemonset), timeout=_ATTEMPT_SECONDS)
            ends = from_json(answer, api.Head).metadata.deletionTimestamp is not None
            return ends or _is_terminating(connection, daemonset.namespace)
        except msgspec.MsgspecError as error:
            raise SourceError(f"{daemonset}: the answer is invalid: {error}") from error
        except ApiError as error:
            if isinstance(error, NotFoundError) and error.object_name == daemonset.name:
                return True
            refused = isinstance(error, UnauthorizedError | ForbiddenError) and error.by_api_server
            only_refused = only_refused and refused
            if time.monotonic() + _BETWEEN_LOOKS > deadline:
                if only_refused:
                    return True
                raise
        time.sleep(_BETWEEN_LOOKS)


class _Heads(Struct):
    items: list[api.Head]


def _is_terminating(connection: "Connection", namespace: str) -> bool:
    """Whether a namespace is being deleted: its pods may be before its DaemonSets. False if unknown."""
    query = {"fieldSelector": f"metadata.name={namespace}"}
    with suppress(SourceError, msgspec.MsgspecError):
        answer = connection.get_json("/api/v1/namespaces", query, timeout=_ATTEMPT_SECONDS)
        return any(one.metadata.deletionTimestamp for one in from_json(answer, _Heads).items)
    return False


def delete_and_wait(
    connection: "Connection", workload: ObjectRef, seconds: float, say: Callable[[str], object]
) -> bool:
    """Delete a workload; return once neither it nor a pod of it exists, and whether there was one.

    `say` gets a sentence about what is waited for. RBAC: get and delete this object by name.

    Raises SourceError if the API server denies it, or if pods still exist after that time: a second call
    continues to wait.
    """
    deadline = time.monotonic() + seconds
    try:
        connection.write("delete", object_path(workload), _FOREGROUND, timeout=max(1.0, min(10.0, seconds)))
    except NotFoundError as error:
        if error.object_name != workload.name:
            raise
        return False
    say(f"{workload}: is being deleted; waiting for its pods to end, for at most {seconds:.0f} s")
    while time.monotonic() < deadline:
        try:
            connection.get_json(object_path(workload), timeout=10.0)
        except NotFoundError as error:
            if error.object_name == workload.name:
                return True
        except (UnreachableError, ServerTroubleError):
            pass  # The deletion continues without this process; the deadline ends the waiting.
        time.sleep(_BETWEEN_LOOKS)
    raise SourceError(
        f"{workload}: its pods did not end within {seconds:.0f} s; see why: "
        f"kubectl -n {workload.namespace} get pods -o wide"
    )
