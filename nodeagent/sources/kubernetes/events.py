"""Kubernetes Events on the object that an administrator must check, and the limits of their number."""

import hashlib
from datetime import UTC, datetime

from nodeagent.errors import SourceError
from nodeagent.model.objects import ObjectRef
from nodeagent.printable import cut_to_bytes, printable
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import AlreadyExistsError

_LONGEST_MESSAGE = 1024
"""Bytes: the API's limit for an Event's note (k8s.io/kubernetes, validation of events)."""
_LONGEST_NAME = 253


def post_event(  # noqa: PLR0913 - each names one field of the Event
    connection: Connection,
    involved: ObjectRef,
    reason: str,
    message: str,
    *,
    node_name: str = "",
    now: datetime | None = None,
    uid: str = "",
) -> SourceError | None:
    """Create a warning about an object of the core API, in the object's namespace.

    Its name follows from object, reason, message and the hour: however many nodes report the same, there is
    one Event per hour. So a repetition within the hour is a success that changes nothing.

    Args:
        connection: to the API server; RBAC: create events.
        involved: the object that it is about.
        reason: one word in CamelCase, for machines.
        message: for people; made safe for a terminal, and cut after 1,024 bytes.
        node_name: the reporting node.
        now: the time; None for now.
        uid: the object's uid: `kubectl describe` shows only Events with it.

    Returns:
        None if the Event exists, else why it could not be created, which must not stop other work.
    """
    message = cut_to_bytes(printable(message), _LONGEST_MESSAGE)
    stamp = (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    hour = stamp[:13]
    digest = hashlib.sha256(repr((involved, reason, message, hour)).encode()).hexdigest()[:16]
    event = {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": f"{involved.name[: _LONGEST_NAME - len(digest) - 1]}.{digest}",
            "namespace": involved.namespace,
        },
        "involvedObject": {
            "kind": involved.kind,
            "apiVersion": "v1",
            "name": involved.name,
            "namespace": involved.namespace,
            **({"uid": uid} if uid else {}),
        },
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "nodeagent", **({"host": node_name} if node_name else {})},
        "reportingComponent": "nodeagent",
        "reportingInstance": node_name,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    try:
        connection.write("create", f"/api/v1/namespaces/{involved.namespace}/events", event)
    except AlreadyExistsError:
        return None
    except SourceError as error:
        return error
    return None
