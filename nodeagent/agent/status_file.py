"""How the agent is, as one file that it keeps up to date, for all who ask in its container or on its node.

    UPTIME alive|stuck ready|unready
    {"schemaVersion": "1", "kind": "AgentStatus", ...}

The first line is for the DaemonSet's startup probe, an `sh` that starts no program; the second for `status`
and `fleet`: `cat` costs a node a millisecond, and `nodeagent status` half a second of Python. Times
are on the clock of /proc/uptime (CLOCK_BOOTTIME), which all containers of a node share and no program sets.

Each agent has its own: in a pod, in a volume of the pod. The supervisor does not read it: if it can't be
written, that must not cost the agent its life.
"""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from nodeagent import __version__
from nodeagent.atomic_file import remove_drafts, replace_file
from nodeagent.model.desired import Desired, Ruled, Verdict
from nodeagent.runtime.health import ComponentHealth, HealthBoard, Role
from nodeagent.supervisor import show_life
from nodeagent.typed_values import from_json

_LOG = logging.getLogger("nodeagent")

AGENT_STATUS_SCHEMA_VERSION: Final = "1"
"""Raised whenever a field is removed or changes its meaning; new fields alone do not raise it."""

IN_POD = Path("/run/nodeagent-status/agent")
"""Where the DaemonSet's agents write it."""
_IN_RUN_DIRECTORY = Path("status", "agent")
"""A directory of its own, since the node's agents watch the run directory."""
_LONGEST_REASON = 1000
_SECONDS = 3.0
_SECONDS_UNREADY = 0.5
"""Until the first sync: the pod is ready that much sooner."""


class ComponentStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One component of the agent: `failedSeconds` is how long it had failed when this was written."""

    state: Literal["ok", "failed", "unknown"] = "unknown"
    reason: str = ""
    failed_seconds: float = 0.0


class VerdictCounts(Struct, frozen=True):
    """The number of decisions of one kind, by verdict."""

    served: int = 0
    skipped: int = 0
    refused: int = 0


class AgentStatus(Struct, frozen=True, rename="camel"):
    """The document.

    `role` is the agent's: what it says about the node is up to date if it is the writer. `writtenAt` is in
    seconds since the node's boot (/proc/uptime); `lastSyncSeconds` is how long before that everything was
    applied last, null for never. `components` are those of the page /readyz; `conflicts` are those whose
    repairs another program undoes.
    """

    schema_version: Literal["1"]
    kind: Literal["AgentStatus"]
    node: str
    version: str
    role: Role
    written_at: float
    last_sync_seconds: float | None
    components: dict[str, ComponentStatus]
    conflicts: list[str] = field(default_factory=list)
    load_balancers: VerdictCounts = VerdictCounts()
    names: VerdictCounts = VerdictCounts()


class UnreadableStatusError(ValueError):
    """A text is not a status file that this version knows."""


class _AnyVersion(Struct, rename="camel"):
    schema_version: str = field(default="none")


def status_path(run_dir: Path) -> Path:
    """Where the file of an agent without a pod is, in its run directory (`relay.runDir`)."""
    return run_dir / _IN_RUN_DIRECTORY


def parse_status(text: bytes) -> AgentStatus:
    """Return what a status file says. Pure.

    Raises:
        UnreadableStatusError: it is not such a file, or one of another version.
    """
    _, _, document = text.partition(b"\n")
    try:
        version = from_json(document, _AnyVersion).schema_version
        if version == AGENT_STATUS_SCHEMA_VERSION:
            return from_json(document, AgentStatus)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableStatusError(f"its status document can't be read: {error}") from error
    raise UnreadableStatusError(f"its status document is of version {version}: use that nodeagent's fleet")


def _counts(decisions: Iterable[Ruled]) -> VerdictCounts:
    verdicts = [decision.ruling.verdict for decision in decisions]
    return VerdictCounts(**{verdict.value: verdicts.count(verdict) for verdict in Verdict})


class StatusFile:
    """Keeps the file up to date, from a thread of its own; and tells the supervisor that this agent lives.

    Args:
        path: the file; its directory is made if needed.
        node: the node's name.
        board: the agent's health.
        uptime: seconds since boot.
    """

    def __init__(
        self,
        path: Path,
        node: str,
        board: HealthBoard,
        uptime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._path = path
        self._node = node
        self._board = board
        self._uptime = uptime
        self._counts = (VerdictCounts(), VerdictCounts())
        self._conflicts: frozenset[str] = frozenset()
        self._failure = ""
        self._closing = Event()
        self._thread = Thread(target=self._keep, name="status-file", daemon=True)

    def record(self, desired: Desired, conflicts: frozenset[str]) -> None:
        """Take over what a pass decided; it is written within three seconds."""
        self._counts = (_counts(desired.load_balancers), _counts(desired.names))
        self._conflicts = conflicts

    def start(self) -> None:
        """Write it, and continue in a thread: every three seconds, more often until the agent is ready."""
        self._thread.start()

    def close(self) -> None:
        """Stop writing, and remove the file, with its directory if it is empty and no mount. Idempotent."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(OSError):  # it holds another agent's, or is a volume; a file that stays is seen as old
            self._path.unlink(missing_ok=True)
            self._path.parent.rmdir()

    def write(self) -> None:
        """Write the file as it is now; a reader sees the whole of the old or of the new one.

        Raises:
            OSError: it can't be written.
        """
        board, now = self._board, time.monotonic()
        uptime, alive, ready = self._uptime(), board.alive().ok, board.ready().ok
        balancers, names = self._counts
        document = AgentStatus(
            schema_version=AGENT_STATUS_SCHEMA_VERSION,
            kind="AgentStatus",
            node=self._node,
            version=__version__,
            role=board.role,
            written_at=round(uptime, 2),
            last_sync_seconds=None if board.synced_at is None else round(now - board.synced_at, 2),
            components={name: _component(component, now) for name, component in board.components.items()},
            conflicts=sorted(self._conflicts),
            load_balancers=balancers,
            names=names,
        )
        first = f"{int(uptime)} {'alive' if alive else 'stuck'} {'ready' if ready else 'unready'}\n"
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._path, first.encode() + msgspec.json.encode(document) + b"\n", durable=False)

    def _keep(self) -> None:
        while True:
            if self._board.alive().ok:
                show_life()
            try:
                self.write()
                self._failure = ""
            except Exception as error:  # noqa: BLE001 - whatever it is: the agent goes on, and shows that it lives
                before, self._failure = self._failure, f"{type(error).__name__}: {error}"
                if self._failure != before:  # it is logged once as long as it is the same
                    fields = {"file": str(self._path), "err": self._failure}
                    _LOG.error("Could not write the status file", extra={"fields": fields})
            if self._closing.wait(_SECONDS if self._board.ready().ok else _SECONDS_UNREADY):
                return


def remove_status(run_dir: Path) -> None:
    """Remove the file that a killed agent left in its run directory. Idempotent.

    Raises:
        OSError: a file can't be removed.
    """
    path = status_path(run_dir)
    path.unlink(missing_ok=True)
    try:
        remove_drafts(path)
        path.parent.rmdir()
    except FileNotFoundError:
        return


def _component(component: ComponentHealth, now: float) -> ComponentStatus:
    if component.error is not None:
        seconds = round(now - component.since, 2)
        return ComponentStatus("failed", component.reason[:_LONGEST_REASON], seconds)
    return ComponentStatus("ok" if component.known else "unknown")
