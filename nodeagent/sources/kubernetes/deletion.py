"""Deletes a workload and waits until its last pod has ended."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import NotFoundError, ServerTroubleError, UnreachableError

_FOREGROUND = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}
"""The object stays, with a deletionTimestamp, until the garbage collector has deleted its pods."""
_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A DaemonSet or Deployment by namespace and name."""

    kind: Literal["DaemonSet", "Deployment"]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Its path on the API server."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/{self.kind.lower()}s/{self.name}"


def delete_and_wait(
    connection: Connection,
    workload: Workload,
    seconds: float,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Delete a workload and return once neither it nor a pod of it exists. Idempotent.

    Args:
        connection: To the API server. RBAC: get and delete this object by name.
        workload: Which one.
        seconds: How long the pods may take to end.
        wait: Waits that many seconds.
        clock: Monotonic seconds.

    Returns:
        Whether there was one to delete.

    Raises:
        SourceError: The API server denies it, or pods are still there after that time. The workload is being
            deleted all the same: a second call goes on waiting.
    """
    deadline = clock() + seconds
    try:
        connection.delete_json(workload.path, _FOREGROUND)
    except NotFoundError:
        return False
    while clock() < deadline:
        try:
            connection.get_json(workload.path, timeout=10.0)
        except NotFoundError:
            return True
        except (UnreachableError, ServerTroubleError):
            # The deletion goes on without us; the deadline ends the waiting.
            pass
        wait(_BETWEEN_LOOKS)
    raise SourceError(
        f"{workload}: it is being deleted, but its pods did not end within {seconds:.0f} s; nothing else was "
        f"deleted. See why: kubectl -n {workload.namespace} get pods -o wide. Then run this again."
    )
