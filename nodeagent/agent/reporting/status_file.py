"""The node's state, as a document that the node's writer keeps up to date in the run directory.

It is for programs that query many nodes (`nodeagent fleet`): `cat` of a file costs a node a millisecond, and
`nodeagent status` half a second of Python. Times are on the clock of /proc/uptime (CLOCK_BOOTTIME), which all
containers of a node share and no program sets: `cat /proc/uptime FILE` shows how old the document is.

It has a directory of its own, since the node's agents watch the run directory.
"""

import logging
import os
import time
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from nodeagent import __version__
from nodeagent.agent.reporting.health import ComponentHealth, Health, HealthBoard, Role
from nodeagent.agent.reporting.name_counts import NameCounts
from nodeagent.model.desired import Desired, Verdict
from nodeagent.printable import printable

_LOG = logging.getLogger("nodeagent")

AGENT_STATUS_SCHEMA_VERSION: Final = "1"
"""Raised whenever a field is removed or changes its meaning; new fields alone do not raise it."""

_DIRECTORY = "status"
_FILE = "agent.json"
_LONGEST_REASON = 1000
_BEAT_SECONDS = 5.0
_SHORTEST_SECONDS = 1.0


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

    `writtenAt` is in seconds since the node's boot (/proc/uptime); `lastSyncSeconds` is how long before that
    everything was applied last, null for never. `components` are those of the page /readyz; `conflicts` are
    those whose repairs another program undoes.
    """

    schema_version: Literal["1"]
    kind: Literal["AgentStatus"]
    node: str
    version: str
    written_at: float
    last_sync_seconds: float | None
    components: dict[str, ComponentStatus]
    conflicts: list[str] = field(default_factory=list)
    load_balancers: VerdictCounts = VerdictCounts()
    names: VerdictCounts = VerdictCounts()


def status_path(run_dir: Path) -> Path:
    """Where the document is, in a run directory (`relay.runDir`)."""
    return run_dir / _DIRECTORY / _FILE


def agent_status(  # noqa: PLR0913 - what it is made of
    node: str,
    health: Health,
    *,
    now: float,
    uptime: float,
    conflicts: frozenset[str],
    load_balancers: VerdictCounts,
    names: VerdictCounts,
) -> AgentStatus:
    """Return the document. Pure.

    Args:
        node: the node's name.
        health: the agent's.
        now: the moment, in seconds of the health board's clock.
        uptime: the same moment, in seconds since boot.
        conflicts: components whose repairs another program undoes.
        load_balancers: their number by decision.
        names: the same for hostnames.
    """
    return AgentStatus(
        schema_version=AGENT_STATUS_SCHEMA_VERSION,
        kind="AgentStatus",
        node=node,
        version=__version__,
        written_at=round(uptime, 2),
        last_sync_seconds=None if health.synced_at is None else round(now - health.synced_at, 2),
        components={name: _component(component, now) for name, component in health.components.items()},
        conflicts=sorted(conflicts),
        load_balancers=load_balancers,
        names=names,
    )


class StatusFile:
    """Keeps the document up to date while this agent is the node's writer.

    Args:
        run_dir: the node's run directory.
        node: the node's name.
        board: the agent's health.
    """

    def __init__(self, run_dir: Path, node: str, board: HealthBoard) -> None:
        self._path = status_path(run_dir)
        self._node = node
        self._board = board
        self._counts = (VerdictCounts(), VerdictCounts())
        self._conflicts: frozenset[str] = frozenset()
        self._changed = True
        self._written = float("-inf")
        self._failure = ""

    def of_pass(self, desired: Desired, names: NameCounts, conflicts: frozenset[str]) -> None:
        """Take over what a pass decided; it is written by the next `keep`."""
        verdicts = [decision.verdict for decision in desired.load_balancers]
        self._counts = (
            VerdictCounts(**{verdict.value: verdicts.count(verdict) for verdict in Verdict}),
            VerdictCounts(**{verdict.value: names.of(verdict) for verdict in Verdict}),
        )
        self._conflicts = conflicts
        self._changed = True

    def keep(self) -> None:
        """Write the document, every five seconds and soon after a pass; to be called by the loop.

        EFFECTS: replaces the file in one step. A failure is logged once and stops nothing.
        """
        now = time.monotonic()
        health = self._board.health
        due = _SHORTEST_SECONDS if self._changed else _BEAT_SECONDS
        if health.role is not Role.WRITER or now - self._written < due:
            return
        self._changed = False
        self._written = now
        balancers, names = self._counts
        document = agent_status(
            self._node,
            health,
            now=now,
            uptime=time.clock_gettime(time.CLOCK_BOOTTIME),
            conflicts=self._conflicts,
            load_balancers=balancers,
            names=names,
        )
        try:
            self._write(msgspec.json.encode(document))
            self._failure = ""
        except OSError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                fields = {"file": str(self._path), "reason": str(error)}
                _LOG.warning("Could not write the status document", extra={"fields": fields})

    def remove(self) -> None:
        """Remove the document if this agent is the writer: it is no longer true. Idempotent."""
        if self._board.health.role is Role.WRITER:
            remove_status(self._path.parents[1])

    def _write(self, document: bytes) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        candidate = self._path.with_suffix(".new")
        descriptor = os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(document)
        candidate.replace(self._path)


def remove_status(run_dir: Path) -> None:
    """Remove the document of whichever agent wrote it, and its directory. Idempotent.

    Raises:
        OSError: a file can't be removed.
    """
    path = status_path(run_dir)
    for file in (path, path.with_suffix(".new")):
        file.unlink(missing_ok=True)
    try:
        path.parent.rmdir()
    except FileNotFoundError:
        return


def _component(component: ComponentHealth, now: float) -> ComponentStatus:
    if component.error is not None:
        reason = printable("; ".join(filter(None, map(str.strip, component.error.splitlines()))))
        return ComponentStatus("failed", reason[:_LONGEST_REASON], round(now - component.since, 2))
    return ComponentStatus("ok" if component.known else "unknown")
