"""What the DaemonSet's exec probes read: a line in a file, which `sh` compares with the clock without a fork.

A probe that starts Python or perl costs more than the agent at rest, every few seconds on every node. So the
agent writes its state and the time; one that hangs writes nothing. The time is the uptime in seconds, as in
/proc/uptime, since `sh` can read nothing else.

    agent: UPTIME alive|stuck started|starting ready|unready
    relay: UPTIME UPTIME-WHEN-HAPROXY-ANSWERED-LAST
"""

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from nodeagent.agent.reporting.health import HealthBoard

_LOG = logging.getLogger("nodeagent")

_SECONDS = 3.0
_START_SECONDS = 40
"""Seconds after which an agent that is not ready counts as started: the API server may be down for long."""


class ProbeFiles:
    """The files `agent` and `relay` in a directory of this pod, kept until `close`.

    Args:
        directory: where they are written; it exists.
        board: the agent's state.
        relay_answers: checks whether HAProxy's master and worker answer, within two seconds; None: no relay.
        uptime: the machine's, in whole seconds.
    """

    def __init__(
        self,
        directory: Path,
        board: HealthBoard,
        relay_answers: Callable[[], bool] | None,
        uptime: Callable[[], int] | None = None,
    ) -> None:
        self._directory = directory
        self._board = board
        self._relay_answers = relay_answers
        self._uptime = uptime or read_uptime
        self._closing = Event()
        self._thread = Thread(target=self._keep, name="probe-files", daemon=True)
        self._began_at = self._answered_at = self._uptime()

    def start(self) -> None:
        """Write them, and continue every three seconds in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop writing, and remove the agent's file. Idempotent."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        (self._directory / "agent").unlink(missing_ok=True)

    def write(self) -> None:
        """Write both files as it is now; a reader sees the whole of one or the other line.

        Raises:
            OSError: one can't be written.
        """
        now = self._uptime()
        ready = self._board.ready().ok
        words = (
            "alive" if self._board.alive().ok else "stuck",
            "started" if ready or now - self._began_at >= _START_SECONDS else "starting",
            "ready" if ready else "unready",
        )
        self._replace("agent", f"{now} {' '.join(words)}\n")
        if self._relay_answers is not None:
            if self._relay_answers():
                self._answered_at = self._uptime()
            self._replace("relay", f"{self._uptime()} {self._answered_at}\n")

    def _keep(self) -> None:
        while True:
            try:
                self.write()
            except OSError as error:
                fields = {"directory": str(self._directory), "err": str(error)}
                _LOG.error("Could not write the files for the probes", extra={"fields": fields})
            if self._closing.wait(_SECONDS):
                return

    def _replace(self, name: str, line: str) -> None:
        draft = self._directory / f".{name}"
        draft.write_text(line, encoding="ascii")
        draft.replace(self._directory / name)


def read_uptime() -> int:
    """Return the machine's uptime in whole seconds."""
    return int(float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]))
