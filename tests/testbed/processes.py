"""A program that runs in the background inside a host."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, Signals
from typing import Self, TypeAlias

from tests.testbed.errors import WorldError, log_tail
from tests.testbed.forked import Forked
from tests.testbed.waiting import wait_until

_BURIAL_SECONDS = 5.0

HEARS_CTRL_C = ("env", "--default-signal=INT")
"""Put before a command that is to end by SIGINT, which background jobs of a shell inherit as ignored."""

Started: TypeAlias = "subprocess.Popen[str] | Forked"
"""A program that the test process or its fork server has started; it keeps its id until it is waited for."""


class InterruptPutOff:
    """Puts a Ctrl-C off to the end of a block of the main thread, but kills the block's program at once.

    Amid the standard library's code, a KeyboardInterrupt can leave the lock of a future or of a Popen held:
    one of a thousand did so at random moments of `Host.run`, and the host's end then waited for it forever.
    """

    def __init__(self) -> None:
        self._heard = False
        self._program: Started | None = None
        self._numbers: list[Signals] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (SIGINT, SIGTERM, SIGHUP):
                if signal.getsignal(number) is signal.default_int_handler:
                    self._numbers.append(number)
                    signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._numbers:
            signal.signal(number, signal.default_int_handler)
        if self._heard:
            raise KeyboardInterrupt

    def kills(self, program: Started) -> None:
        """Have this program killed by a Ctrl-C, also by one that came already."""
        self._program = program
        if self._heard:
            self._kill()

    def _hear(self, *_: object) -> None:
        self._heard = True
        self._kill()

    def _kill(self) -> None:
        # Not the program's own method: it may be what was interrupted.
        if self._program is not None:
            with suppress(ProcessLookupError):
                os.kill(self._program.pid, SIGKILL)


class Process:
    """A background program of one host, in words for errors, and the log it writes."""

    def __init__(self, started: Started, what: str, log: Path) -> None:
        self._started = started
        self.what = what
        self.log = log

    @property
    def pid(self) -> int:
        self.check_running()
        return self._started.pid

    def check_running(self) -> None:
        """Raise a `WorldError` with the end of the log when the program has ended."""
        code = self._started.poll()
        if code is not None:
            raise WorldError(f"{self.what} ended with exit code {code}{log_tail(self.log)}")

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def await_that(
        self, condition: Callable[[], object], what: str, *, seconds: float = 10.0, every: float = 0.01
    ) -> None:
        """Wait for a condition as long as the program runs; an error ends with the end of its log."""

        def holds() -> bool:
            self.check_running()
            return bool(condition())

        try:
            wait_until(holds, f"{self.what}: {what}", seconds=seconds, every=every)
        except WorldError as error:
            raise WorldError(f"{error}{log_tail(self.log)}") from error

    @property
    def running(self) -> bool:
        return self._started.poll() is None

    def signal(self, number: Signals) -> None:
        os.kill(self.pid, number)

    def stop(self, number: Signals = SIGTERM) -> int:
        """End the program by a signal, and by SIGKILL when that is not enough in time; returns as `wait`."""
        if self.running:
            self.signal(number)
        return self.wait()

    def wait(self, *, seconds: float = 10.0) -> int:
        """Wait for the end, or kill it after `seconds`; the exit code is negative if a signal ended it."""
        try:
            return self._started.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._started.kill()
            return self._started.wait(timeout=_BURIAL_SECONDS)


def children(pid: int) -> list[int]:
    """List the processes that a (single-threaded) process has forked and not yet reaped."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def alive(name: str) -> list[int]:
    """The processes of that name in this pid namespace that have not ended (zombies have)."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal():
            try:
                status = (directory / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            program, state = status.partition("(")[2].rpartition(") ")[::2]
            if program == name and not state.startswith("Z"):
                found.append(int(directory.name))
    return sorted(found)
