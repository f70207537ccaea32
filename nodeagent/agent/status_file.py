"""The status as one file that the agent keeps up to date, for `status`, `doctor` and `fleet`.

`cat` costs a node a millisecond, and `nodeagent status` half a second of Python. Times are on the clock of
/proc/uptime (CLOCK_BOOTTIME), which all containers of a node share and no program sets.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import msgspec

from nodeagent.linux.atomic_file import remove_drafts, replace_file
from nodeagent.observe.status import RejectedConfig, Status, parse_status
from nodeagent.observe.transition_log import TransitionLog

_SECONDS = 3.0


def status_path(run_dir: Path) -> Path:
    """Return where the file is, in `relay.runDir`."""
    return run_dir / "status.json"


IN_POD = status_path(Path("/run/nodeagent"))
"""Where the DaemonSet's agents write it."""


class StatusFile:
    """Keeps the file up to date, from a thread of its own; its directory is made if needed."""

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
        document = msgspec.json.encode(self._status.document(self._node, self._uptime()))
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
            if self._closing.wait(_SECONDS):
                return


def remove_status(path: Path) -> None:
    """Remove the file, also a killed agent's. Idempotent. Raises OSError."""
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
