"""A program that runs in the background inside a host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Protocol

from tests.testbed.errors import WorldError, log_tail
from tests.testbed.waiting import wait_until

_BURIAL_SECONDS = 5.0

HEARS_CTRL_C = ("env", "--default-signal=INT")
"""Put before a command that is to end by SIGINT.

A shell without job control starts background jobs with SIGINT ignored. Programs inherit that, and Python
leaves it so.
"""


class Outer(Protocol):
    """What is between the test and a program in a host: `nsenter`, or the fork server's child."""

    @property
    def pid(self) -> int:
        """Its process id; the program is its only child."""

    def poll(self) -> int | None:
        """See `subprocess.Popen`."""

    def wait(self, timeout: float | None = None) -> int:
        """See `subprocess.Popen`."""

    def kill(self) -> None:
        """See `subprocess.Popen`."""


class Process:
    """A background program of one host, and the log it writes.

    Between the test and the program is a process that stays outside the host's process namespace
    and passes no signal on: signals go to the program itself.

    Args:
        outer: That process.
        what: The program in words, for errors.
        log: Where its output is written.
    """

    def __init__(self, outer: Outer, what: str, log: Path) -> None:
        self._outer = outer
        self.what = what
        self.log = log

    @property
    def pid(self) -> int:
        """The program's own process id, as the machine sees it."""
        found: list[int] = []

        def forked() -> bool:
            self.check_running()
            found.extend(children(self._outer.pid))
            return bool(found)

        wait_until(forked, f"{self.what} being forked")
        return found[0]

    def check_running(self) -> None:
        """Raise a `WorldError` with the end of the log when the program has ended."""
        code = self._outer.poll()
        if code is not None:
            raise WorldError(f"{self.what} ended with exit code {code}{log_tail(self.log)}")

    @property
    def running(self) -> bool:
        """Whether the program still runs."""
        return self._outer.poll() is None

    def signal(self, number: Signals) -> None:
        """Send a signal to the program."""
        os.kill(self.pid, number)

    def stop(self, number: Signals = SIGTERM, *, seconds: float = 10.0) -> int:
        """End the program by a signal, and by SIGKILL when that is not enough in time.

        Args:
            number: The signal that asks it to end.
            seconds: How long it may take to do so.

        Returns:
            Its exit code, negative when a signal ended it.
        """
        if self.running:
            self.signal(number)
        return self.wait(seconds=seconds)

    def wait(self, *, seconds: float = 10.0) -> int:
        """Wait for the end; a program that takes longer than `seconds` is killed.

        Returns:
            Its exit code, negative when a signal ended it.
        """
        try:
            return self._outer.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return kill_inside(self._outer)


def kill_inside(outer: Outer) -> int:
    """Kill the program behind an outer process and let that bury it.

    The other way round the dead program would wait for the machine's process 1, and its host with it: the
    kernel takes no process namespace down before every process in it is buried.

    Returns:
        The exit code.
    """
    for child in children(outer.pid):
        os.kill(child, SIGKILL)
    try:
        return outer.wait(timeout=_BURIAL_SECONDS)
    except subprocess.TimeoutExpired:
        outer.kill()
        return outer.wait()


def children(pid: int) -> list[int]:
    """List the processes that a (single-threaded) process has forked and not yet reaped."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
