"""nodeagent's own workloads: whether the DaemonSet is being deleted, and deleting one to its last pod."""

import time

import msgspec

from nodeagent.errors import SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import NotFoundError, ServerTroubleError, UnreachableError
from nodeagent.sources.kubernetes.resources import object_path
from nodeagent.sources.objects.api import Head
from nodeagent.typed_values import from_json

GOING_SECONDS = 20.0
"""For all of an ending agent's attempts to learn why it ends: an API server may just be restarting."""
_ATTEMPT_SECONDS = 5.0
_FOREGROUND = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
"""The object stays, with a deletionTimestamp, until the garbage collector has deleted its pods."""
_BETWEEN_LOOKS = 1.0


def is_going(connection: Connection, daemonset: ObjectRef) -> bool:
    """Whether it is deleted or being deleted; an upgrade or a restart of the agent is neither.

    Only the API server's own word for this object counts: a proxy in front of it, or a server that is just
    starting, may answer 404 to everything. Each attempt is made over a new connection.

    Raises:
        SourceError: the API did not answer within 20 seconds; RBAC: get this DaemonSet by name.
    """
    deadline = time.monotonic() + GOING_SECONDS
    while True:
        # The other end of a kept connection may have died without a word.
        connection.close()
        try:
            return _is_going(connection, daemonset)
        except (UnreachableError, ServerTroubleError):
            if time.monotonic() + _BETWEEN_LOOKS > deadline:
                raise
        time.sleep(_BETWEEN_LOOKS)


def _is_going(connection: Connection, daemonset: ObjectRef) -> bool:
    try:
        answer = connection.get_json(object_path(daemonset), timeout=_ATTEMPT_SECONDS)
        found = from_json(answer, Head)
    except NotFoundError as error:
        if error.object_name != daemonset.name:
            raise
        return True
    except msgspec.MsgspecError as error:
        raise SourceError(f"{daemonset}: the answer is invalid: {error}") from error
    return found.metadata.deletionTimestamp is not None


def delete_and_wait(connection: Connection, workload: ObjectRef, seconds: float) -> bool:
    """Delete a workload and return once neither it nor a pod of it exists. Idempotent.

    Args:
        connection: To the API server. RBAC: get and delete this object by name.
        workload: A DaemonSet or a Deployment.
        seconds: How long the pods may take to end.

    Returns:
        Whether there was one to delete.

    Raises:
        SourceError: The API server denies it, or pods still exist after that time. The workload is being
            deleted all the same: a second call continues to wait.
    """
    deadline = time.monotonic() + seconds
    try:
        connection.write("delete", object_path(workload), _FOREGROUND)
    except NotFoundError:
        return False
    while time.monotonic() < deadline:
        try:
            connection.get_json(object_path(workload), timeout=10.0)
        except NotFoundError:
            return True
        except (UnreachableError, ServerTroubleError):
            pass  # The deletion continues without this process; the deadline ends the waiting.
        time.sleep(_BETWEEN_LOOKS)
    raise SourceError(
        f"{workload}: it is being deleted, but its pods did not end within {seconds:.0f} s; nothing else was "
        f"deleted. See why: kubectl -n {workload.namespace} get pods -o wide. Then run this again."
    )
