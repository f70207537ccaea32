"""Single requests: what the server has, the cluster at one moment, nodeagent's own workloads.

Which optional kinds it has: "API concepts: API group and resource discovery", in its unaggregated form, which
every version supports. Every authenticated user may read it (ClusterRole system:discovery). A watch on
CustomResourceDefinitions would notice at once, but needs the right to read all of them.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from nodeagent.errors import SourceError, one_line
from nodeagent.model.addresses import IPAddress
from nodeagent.model.objects import Node, ObjectRef, Snapshot
from nodeagent.sources.kubernetes import errors, resources
from nodeagent.sources.kubernetes.fail_static import DECIDING
from nodeagent.sources.kubernetes.listing import read_list
from nodeagent.sources.kubernetes.resources import DISCOVERY, NAMESPACES, Resource
from nodeagent.sources.objects import api, kinds
from nodeagent.typed_values import from_json

if TYPE_CHECKING:  # the types of the answers are used where no cluster is asked
    from nodeagent.sources.kubernetes.connection import Connection

_Answer = TypeVar("_Answer")
_SECONDS = 15.0


class _Version(Struct):
    version: str


class _Group(Struct):
    name: str
    versions: list[_Version]


class _Groups(Struct):
    groups: list[_Group]


class _Served(Struct):
    name: str
    verbs: list[str] = msgspec.field(default_factory=list)


class _ServedKinds(Struct):
    resources: list[_Served]


def discover(connection: "Connection", *, hostnames: bool) -> dict[str, Resource | SourceError]:
    """Ask group by group which optional kinds are served; raises nothing.

    Return each kind's row in the best version that can be read; NotFoundError if the server says that there
    is no such kind, another error if it did not say.
    """
    try:
        served = _ask(connection, "/apis", _Groups).groups
    except SourceError as error:
        # No API server lacks this path: whatever said so knows nothing of kinds.
        failure = errors.NotJsonError(str(error)) if isinstance(error, errors.NotFoundError) else error
        return dict.fromkeys(resources.optional_names(hostnames=hostnames), failure)
    groups = {group.name: {entry.version for entry in group.versions} for group in served}

    @cache
    def plurals(group: str, version: str) -> frozenset[str] | SourceError:
        try:
            return served_plurals(connection, group, version)
        except errors.NotFoundError:
            return frozenset()
        except SourceError as error:
            return error

    wanted = kinds.OPTIONAL_KINDS if hostnames else (kinds.SERVICE_RANGES,)
    rows = {kind.name: _best(kind, groups.get(kind.group), plurals) for kind in wanted}
    if hostnames:
        gateways = rows[kinds.GATEWAYS.name]
        rows[NAMESPACES.name] = NAMESPACES if isinstance(gateways, Resource) else gateways
    return rows


def _best(
    kind: kinds.OptionalKind,
    served: Collection[str] | None,
    plurals: Callable[[str, str], frozenset[str] | SourceError],
) -> Resource | SourceError:
    """Return the kind's row in the best of the `served` versions of its group, as `discover` does."""
    if kind is kinds.SERVICE_RANGES and served is None:
        return errors.NotJsonError(f"get /apis: the answer lacks {kind.group}, which every API server has")
    for version in (candidate for candidate in kind.versions if candidate in (served or ())):
        names = plurals(kind.group, version)
        if isinstance(names, SourceError):
            return names
        if kind.plural in names:
            return resources.optional_resource(kind, version)
    return errors.NotFoundError(f"get /apis: the API server has no {kind.name}")


def unread_kinds(connection: "Connection") -> tuple[str, ...]:
    """Return the served kinds that claim hostnames and are not read. Raises ApiError."""
    return tuple(
        f"{plural}.{group.name}"
        for group in _ask(connection, "/apis", _Groups).groups
        for plural in kinds.UNREAD_KINDS.get(group.name, ())
        if any(plural in served_plurals(connection, group.name, entry.version) for entry in group.versions)
    )


def served_plurals(connection: "Connection", group: str, version: str) -> frozenset[str]:
    """Return the plurals of what of a group's version may be listed and watched. Raises ApiError."""
    served = _ask(connection, f"/apis/{group}/{version}", _ServedKinds).resources
    return frozenset(resource.name for resource in served if {"list", "watch"} <= {*resource.verbs})


def _ask(connection: "Connection", path: str, expected: type[_Answer]) -> _Answer:
    try:
        return from_json(connection.get_json(path, timeout=_SECONDS), expected)
    except msgspec.MsgspecError as error:
        why = f"get {path}: the answer can't be used: {error}; {errors.NO_API_SERVER}"
        raise errors.NotJsonError(why) from error


def read_cluster(
    connection: "Connection",
    node_name: str,
    relay: resources.Name | None = None,
    *,
    hostnames: bool = True,
    nodes: bool = False,
) -> Snapshot:
    """List everything on which decisions depend, once. The arguments are those of `Cluster`.

    With `nodes`, all nodes and other Services' externalIPs are read, too; all nodes also if this one has no
    Node. Raises SourceError if a list that every decision needs is not available.
    """
    rows = resources.watched(node_name, relay, hostnames=hostnames)
    read = {row.name: _read_once(connection, row) for row in rows}
    served = discover(connection, hostnames=hostnames)
    read |= {name: _read_once(connection, row) for name, row in served.items()}
    failed = {name: error for name, error in read.items() if isinstance(error, SourceError)}
    pending = {name: str(error) for name, error in failed.items() if not isinstance(error, DECIDING)}
    for name in resources.PROTECTING & pending.keys():
        raise failed[name]
    has_node = any(
        isinstance(value, Node) for values in read.values() if isinstance(values, tuple) for value in values
    )
    if nodes or not has_node:
        read[resources.NODE_ADDRESSES.name] = _read_once(connection, resources.NODE_ADDRESSES)
    if nodes:
        read[resources.EXTERNAL_IPS.name] = _read_once(connection, resources.EXTERNAL_IPS)
    denied = [
        (DISCOVERY if error is served.get(name) else name, str(error))
        for name, error in read.items()
        if isinstance(error, errors.ForbiddenError)
    ]
    collections = [values for values in read.values() if isinstance(values, tuple)]
    return resources.assembled(collections, dict.fromkeys(denied), pending)


def _read_once(connection: "Connection", row: Resource | SourceError) -> tuple[object, ...] | SourceError:
    """Return a collection's objects, or why there are none; raise that if no decision can do without."""
    if isinstance(row, SourceError):
        return row
    try:
        return tuple(read_list(connection, row).items.values())
    except SourceError as error:
        if not row.optional:
            raise
        return error


class ClusterAnswers(Struct, frozen=True):
    """What the API server answered; what is not available is empty or None, and `why` says so, by name.

    `version` is such as v1.33.2, `dns` is the cluster DNS's ClusterIP, `policy_api` the best version in which
    MutatingAdmissionPolicies are served. `unread` are the served kinds that claim hostnames and are not read.
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


class _ServerVersion(Struct, rename="camel"):
    git_version: str = ""


def ask_cluster(connection: "Connection") -> ClusterAnswers:
    """Ask all of it. Raises nothing: the result says what is not available."""
    answers: dict[str, Any] = {}
    why: dict[str, str] = {}
    questions = {"version": _version, "dns": _dns, "policy_api": _policies, "unread": unread_kinds}
    for field, ask in questions.items():
        try:
            answers[field] = ask(connection)
        except errors.ForbiddenError:
            why[field] = "this user may not read it"
        except (SourceError, ValueError) as error:
            why[field] = one_line(error)
    return ClusterAnswers(**answers, why=why)


def _version(connection: "Connection") -> str:
    return _ask(connection, "/version", _ServerVersion).git_version


def _dns(connection: "Connection") -> IPAddress:
    spec = _ask(connection, _DNS_SERVICE, api.Service).spec
    return ip_address(spec.clusterIP or "" if spec else "")


def _policies(connection: "Connection") -> str:
    for version in _POLICY_VERSIONS:
        with suppress(errors.NotFoundError):
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
    refusal is none. RBAC: get this DaemonSet by name. Raises SourceError without an answer in that time.
    """
    deadline = time.monotonic() + GOING_SECONDS
    only_refused = True
    while True:
        # The other end of a kept connection may have died without a word.
        connection.close()
        try:
            answer = connection.get_json(resources.object_path(daemonset), timeout=_ATTEMPT_SECONDS)
            ends = from_json(answer, api.Head).metadata.deletionTimestamp is not None
            return ends or _is_terminating(connection, daemonset.namespace)
        except msgspec.MsgspecError as error:
            raise SourceError(f"{daemonset}: the answer is invalid: {error}") from error
        except errors.ApiError as error:
            if isinstance(error, errors.NotFoundError) and error.object_name == daemonset.name:
                return True
            refused = isinstance(error, errors.UnauthorizedError | errors.ForbiddenError)
            only_refused = only_refused and refused and error.by_api_server
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
        return any(head.metadata.deletionTimestamp for head in from_json(answer, _Heads).items)
    return False


def delete_and_wait(
    connection: "Connection", workload: ObjectRef, seconds: float, say: Callable[[str], object]
) -> bool:
    """Delete a workload; return once neither it nor a pod of it exists, and whether there was one.

    `say` gets a sentence about what is waited for. RBAC: get and delete this object by name. Raises
    SourceError if that is denied, or if pods still exist after that time: a second call continues to wait.
    """
    deadline = time.monotonic() + seconds
    try:
        limit = max(1.0, min(10.0, seconds))
        connection.write("delete", resources.object_path(workload), _FOREGROUND, limit)
    except errors.NotFoundError as error:
        if error.object_name != workload.name:
            raise
        return False
    say(f"{workload}: is being deleted; waiting for its pods to end, for at most {math.ceil(seconds)} s")
    while time.monotonic() < deadline:
        try:
            connection.get_json(resources.object_path(workload), timeout=10.0)
        except errors.NotFoundError as error:
            if error.object_name == workload.name:
                return True
        except (errors.UnreachableError, errors.ServerTroubleError):
            pass  # The deletion continues without this process; the deadline ends the waiting.
        time.sleep(_BETWEEN_LOOKS)
    raise SourceError(
        f"{workload}: its pods did not end within {math.ceil(seconds)} s; see why: "
        f"kubectl -n {workload.namespace} get pods -o wide"
    )
