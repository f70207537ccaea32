"""A program that runs in the background inside a host."""

import os
import subprocess
from pathlib import Path
from signal import SIGTERM, Signals
from typing import TypeAlias

from tests.testbed.errors import WorldError, log_tail
from tests.testbed.forked import Forked

_BURIAL_SECONDS = 5.0

HEARS_CTRL_C = ("env", "--default-signal=INT")
"""Put before a command that is to end by SIGINT.

A shell without job control starts background jobs with SIGINT ignored. Programs inherit that, and Python
leaves it so.
"""

Started: TypeAlias = "subprocess.Popen[str] | Forked"
"""A program that the test process or its fork server has started; it keeps its id until it is waited for."""


class Process:
    """A background program of one host, in words for errors, and the log it writes."""

    def __init__(self, started: Started, what: str, log: Path) -> None:
        self._started = started
        self.what = what
        self.log = log

    @property
    def pid(self) -> int:
        """The program's process id, as the machine sees it."""
        self.check_running()
        return self._started.pid

    def check_running(self) -> None:
        """Raise a `WorldError` with the end of the log when the program has ended."""
        code = self._started.poll()
        if code is not None:
            raise WorldError(f"{self.what} ended with exit code {code}{log_tail(self.log)}")

    @property
    def running(self) -> bool:
        """Whether the program still runs."""
        return self._started.poll() is None

    def signal(self, number: Signals) -> None:
        """Send a signal to the program."""
        os.kill(self.pid, number)

    def stop(self, number: Signals = SIGTERM) -> int:
        """End the program by a signal, and by SIGKILL when that is not enough in time; returns as `wait`."""
        if self.running:
            self.signal(number)
        return self.wait()

    def wait(self, *, seconds: float = 10.0) -> int:
        """Wait for the end; a program that takes longer than `seconds` is killed.

        Returns:
            Its exit code, negative when a signal ended it.
        """
        try:
            return self._started.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._started.kill()
            return self._started.wait(timeout=_BURIAL_SECONDS)


def children(pid: int) -> list[int]:
    """List the processes that a (single-threaded) process has forked and not yet reaped."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
