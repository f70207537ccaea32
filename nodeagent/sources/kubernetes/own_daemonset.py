"""Whether the agent's own DaemonSet is going: asked once, when the agent is told to end."""

from dataclasses import dataclass

import msgspec

from nodeagent.errors import SourceError
from nodeagent.sources.kubernetes.connection import Connection
from nodeagent.sources.kubernetes.errors import NotFoundError

_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class OwnDaemonSet:
    """The DaemonSet that runs this agent, by name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"DaemonSet {self.namespace}/{self.name}"


class _Metadata(msgspec.Struct):
    deletionTimestamp: str | None = None  # noqa: N815 - the API's field


class _DaemonSet(msgspec.Struct):
    metadata: _Metadata


def is_going(connection: Connection, daemonset: OwnDaemonSet) -> bool:
    """Whether it is deleted or being deleted; an upgrade or a restart of the agent is neither.

    Raises:
        SourceError: the API did not tell within two seconds; RBAC: get this DaemonSet by name.
    """
    path = f"/apis/apps/v1/namespaces/{daemonset.namespace}/daemonsets/{daemonset.name}"
    try:
        found = msgspec.json.decode(connection.get_json(path, timeout=_SECONDS), type=_DaemonSet)
    except NotFoundError:
        return True
    except msgspec.MsgspecError as error:
        raise SourceError(f"{daemonset}: the answer makes no sense: {error}") from error
    return found.metadata.deletionTimestamp is not None
