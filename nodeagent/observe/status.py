"""How a process is: one value, of which pages, a file, `status`, `fleet` and metrics are renderings."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from threading import Event, Thread
from typing import Final, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from nodeagent import __version__
from nodeagent.errors import printable
from nodeagent.linux.atomic_file import remove_drafts, replace_file
from nodeagent.model.decisions import Decision, DecisionStatus
from nodeagent.model.desired import Desired
from nodeagent.observe.transition_log import TransitionLog
from nodeagent.typed_values import from_json

LONGEST_TURN_SECONDS = 120.0

AGENT_STATUS_SCHEMA_VERSION: Final = "1"
"""Raised whenever a field is removed or changes its meaning; new fields alone do not raise it."""
_LONGEST_REASON = 1000
_FILE_SECONDS = 3.0


class Page(Struct, frozen=True):
    """The answer to a probe, and the text."""

    ok: bool
    text: str


class DecisionCounts(Struct, frozen=True):
    """The number of decisions of one kind, by status."""

    served: int = 0
    skipped: int = 0
    refused: int = 0


class ComponentStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One component of the agent: `failedSeconds` is how long it had failed when this was written."""

    state: Literal["ok", "failed", "unknown"] = "unknown"
    reason: str = ""
    failed_seconds: float = 0.0

    def __str__(self) -> str:
        if self.state == "failed":
            return f"failed since {self.failed_seconds:.0f} s: {self.reason}"
        return "ok" if self.state == "ok" else "not yet"


class RelayStatus(Struct, frozen=True, rename="camel"):
    """The HAProxy at which new connections arrive: its pod, empty without one, and its version."""

    pod: str = ""
    version: str = ""


class RejectedConfig(Struct, frozen=True):
    """A configuration file that a running agent rejected, why, and what is active instead, as in a file."""

    file: str
    reason: str
    active: str


class AgentStatus(Struct, frozen=True, rename="camel"):
    """The status as a document.

    `writtenAt` is in seconds since the node's boot (/proc/uptime); `lastSyncSeconds` is how long before that
    everything was applied last, null for never. `components` are those of the page /readyz; `conflicts` are
    those whose repairs another program undoes. `rejected` is null if the file's configuration is active.
    """

    schema_version: Literal["1"]
    kind: Literal["AgentStatus"]
    node: str
    version: str
    written_at: float
    last_sync_seconds: float | None
    components: dict[str, ComponentStatus]
    conflicts: list[str] = field(default_factory=list)
    load_balancers: DecisionCounts = DecisionCounts()
    names: DecisionCounts = DecisionCounts()
    relay: RelayStatus = RelayStatus()
    rejected: RejectedConfig | None = None


class Status:
    """How a process is. Its loop writes it, each attribute as one value; threads of pages and files read it.

    `waits_for` is what must end before this process may write, empty if it writes; `synced_at` is when it
    last applied everything, in the clock's monotonic seconds, None for never. `components` are those whose
    state is shown: the components and others such as `api`.
    """

    def __init__(self, components: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._components = {name: ComponentStatus() for name in components}
        self._failing_since: dict[str, float] = {}
        self.waits_for = ""
        self.synced_at: float | None = None
        self.conflicts: frozenset[str] = frozenset()
        self.desired = Desired()
        self.relay = RelayStatus()
        self.rejected: RejectedConfig | None = None
        self._turn_at = clock()

    def heartbeat(self) -> None:
        """Report that the loop begins a turn."""
        self._turn_at = self._clock()

    @property
    def components(self) -> dict[str, ComponentStatus]:
        """The state of each component at this moment, in order."""
        now, since = self._clock(), self._failing_since.copy()
        return {
            name: replace(status, failed_seconds=round(now - since[name], 2)) if name in since else status
            for name, status in self._components.items()
        }

    def report(self, component: str, error: str | None) -> None:
        """Note that a component is in the desired state (None), or failed, since the first in a row."""
        if error is None:
            self._failing_since.pop(component, None)
            self._components[component] = ComponentStatus("ok")
        else:
            self._failing_since.setdefault(component, self._clock())
            reason = printable("; ".join(filter(None, map(str.strip, error.splitlines()))))
            self._components[component] = ComponentStatus("failed", reason[:_LONGEST_REASON])

    def synced(self) -> None:
        """Note that this process has applied everything at this moment."""
        self.synced_at = self._clock()

    def alive(self) -> Page:
        """Whether the loop has begun a turn within two minutes: a restart would help against nothing else."""
        age = self._clock() - self._turn_at
        ok = age <= LONGEST_TURN_SECONDS
        limit = f"limit: {LONGEST_TURN_SECONDS:.0f} s"
        return Page(ok, f"{'alive' if ok else 'stuck'}: last report {age:.0f} s ago ({limit})\n")

    def ready(self) -> Page:
        """Whether this process writes and has once applied everything; later failures don't revoke that."""
        waits = printable(self.waits_for) or (
            "" if self.synced_at is not None else "this process has not applied all components yet"
        )
        components = (f"{name}: {component}" for name, component in self.components.items())
        return Page(not waits, "\n".join((f"not ready: {waits}" if waits else "ready", *components, "")))

    def document(self, node: str, uptime: float) -> AgentStatus:
        """Return the status as a document; `uptime` is in seconds since the node's boot."""
        synced_at = self.synced_at
        return AgentStatus(
            schema_version=AGENT_STATUS_SCHEMA_VERSION,
            kind="AgentStatus",
            node=node,
            version=__version__,
            written_at=round(uptime, 2),
            last_sync_seconds=None if synced_at is None else round(self._clock() - synced_at, 2),
            components=self.components,
            conflicts=sorted(self.conflicts),
            load_balancers=_counts(self.desired.load_balancers),
            names=_counts(self.desired.names),
            relay=self.relay,
            rejected=self.rejected,
        )


def _counts(decisions: Iterable[Decision]) -> DecisionCounts:
    statuses = [*map(attrgetter("conclusion.status"), decisions)]
    return DecisionCounts(**{status.value: statuses.count(status) for status in DecisionStatus})


def parse_status(text: bytes) -> AgentStatus:
    """Return what a status file of this version says. Raises as `from_json`."""
    return from_json(text, AgentStatus)


def status_path(run_dir: Path) -> Path:
    """Return where the file is, in `relay.runDir`."""
    return run_dir / "status.json"


IN_POD = status_path(Path("/run/nodeagent"))
"""Where the DaemonSet's agents write it."""


class StatusFile:
    """Keeps the status in a file: `cat` takes a millisecond, `nodeagent status` half a second of Python."""

    def __init__(self, path: Path, node: str, status: Status) -> None:
        self._path = path
        self._node = node
        self._status = status
        self._closing = Event()
        self._thread = Thread(target=self._keep, name="status-file", daemon=True)

    def start(self) -> None:
        """Write it every three seconds. Idempotent."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Stop writing, and remove the file if this process wrote it. Idempotent."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
            with suppress(OSError):  # one that stays is seen as old
                remove_status(self._path)

    def write(self) -> None:
        """Write the file; a reader sees the whole of the old or of the new one. Raises OSError."""
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        document = msgspec.json.encode(self._status.document(self._node, uptime))
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._path, document + b"\n", durable=False)

    def _keep(self) -> None:
        log = TransitionLog()
        while True:
            failed = {}
            try:
                self.write()
            except Exception as error:  # noqa: BLE001 - whatever it is: the agent goes on
                failed = {str(self._path): f"{type(error).__name__}: {error}"}
            log.problems("Could not write the status file", failed, "file")
            if self._closing.wait(_FILE_SECONDS):
                return


def remove_status(path: Path) -> None:
    """Remove the file. Idempotent. Raises OSError."""
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        remove_drafts(path)


def read_rejected(config_file: Path) -> RejectedConfig | None:
    """Return what the agent here says about this file; None if it did not reject it."""
    with suppress(OSError, msgspec.MsgspecError, RecursionError):
        rejected = parse_status(IN_POD.read_bytes()).rejected
        if rejected and rejected.file == str(config_file):
            return rejected
    return None
