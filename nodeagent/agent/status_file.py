"""The status as one file that the agent keeps up to date, for all who ask in its container or on its node.

    UPTIME alive|stuck ready|unready
    {"schemaVersion": "1", "kind": "AgentStatus", ...}

The first line is for the DaemonSet's startup probe, an `sh` that starts no program; the second for `status`
and `fleet`: `cat` costs a node a millisecond, and `nodeagent status` half a second of Python. Times
are on the clock of /proc/uptime (CLOCK_BOOTTIME), which all containers of a node share and no program sets.

Each agent has its own: in a pod, in a volume of the pod. The supervisor does not read it: if it can't be
written, that must not cost the agent its life.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import msgspec

from nodeagent.config.options import Config
from nodeagent.linux.atomic_file import remove_drafts, replace_file
from nodeagent.observe.status import Status
from nodeagent.observe.transition_log import TransitionLog
from nodeagent.supervisor import heartbeat
from nodeagent.typed_values import from_json

IN_POD = Path("/run/nodeagent-status/agent")
"""Where the DaemonSet's agents write it."""
_SECONDS = 3.0
_SECONDS_UNREADY = 0.5
"""Until the first sync: the pod is ready that much sooner."""


def status_path(run_dir: Path) -> Path:
    """Where the file of an agent without a pod is, in its run directory (`relay.runDir`).

    In a directory of its own, since the node's agents watch the run directory.
    """
    return run_dir / "status" / "agent"


class StatusFile:
    """Keeps the file up to date, from a thread of its own; and tells the supervisor that this agent lives.

    Args:
        path: the file; its directory is made if needed.
        node: the node's name.
        status: the agent's.
        uptime: seconds since boot.
    """

    def __init__(
        self,
        path: Path,
        node: str,
        status: Status,
        uptime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._path = path
        self._node = node
        self._status = status
        self._uptime = uptime
        self._closing = Event()
        self._thread = Thread(target=self._keep, name="status-file", daemon=True)

    def start(self) -> None:
        """Write it, and continue in a thread: every three seconds, more often until the agent is ready."""
        self._thread.start()

    def close(self) -> None:
        """Stop writing, and remove the file. Idempotent."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(OSError):  # its directory holds another agent's; a file that stays is seen as old
            keep_rejected(self._path, None)
            remove_status(self._path)

    def write(self) -> None:
        """Write the file as it is now; a reader sees the whole of the old or of the new one.

        Raises:
            OSError: it can't be written.
        """
        status, uptime = self._status, self._uptime()
        life = "alive" if status.alive().ok else "stuck"
        first = f"{int(uptime)} {life} {'ready' if status.ready().ok else 'unready'}\n"
        document = msgspec.json.encode(status.document(self._node, uptime))
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._path, first.encode() + document + b"\n", durable=False)

    def _keep(self) -> None:
        log = TransitionLog()
        while True:
            if self._status.alive().ok:
                heartbeat()
            failed = {}
            try:
                self.write()
            except Exception as error:  # noqa: BLE001 - whatever it is: the agent goes on, and shows that it lives
                failed = {str(self._path): f"{type(error).__name__}: {error}"}
            log.problems("Could not write the status file", failed, "file")
            if self._closing.wait(_SECONDS if self._status.ready().ok else _SECONDS_UNREADY):
                return


def remove_status(path: Path) -> None:
    """Remove the file, also a killed agent's, with its directory unless that is a mount. Idempotent.

    Raises:
        OSError: a file can't be removed, or is another's.
    """
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        remove_drafts(path)
        path.parent.rmdir()


class RejectedConfig(msgspec.Struct, frozen=True):
    """A configuration file that a running agent rejected, why, and what is active instead, as in a file."""

    file: str
    reason: str
    active: str


def _rejected_path(status_file: Path) -> Path:
    return status_file.with_name("rejected-config.json")


def keep_rejected(status_file: Path, rejected: RejectedConfig | None) -> None:
    """Write next to the status file what is active in place of a rejected configuration, or remove that.

    Raises:
        OSError: it can't be written, or removed.
    """
    path = _rejected_path(status_file)
    if rejected is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(rejected), durable=False)


def read_rejected(config_file: Path) -> RejectedConfig | None:
    """Return what the agent here says about this file; None if it did not reject it."""
    for status_file in (IN_POD, status_path(Path(Config().relay.run_dir))):
        with suppress(OSError, msgspec.MsgspecError):
            found = from_json(_rejected_path(status_file).read_bytes(), RejectedConfig)
            if found.file == str(config_file):
                return found
    return None
