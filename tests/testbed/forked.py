"""Starts Python programs in a host without the time that their imports take.

A start of `python -P -m nodeagent` needs 0.3 to 0.5 s of CPU time, most of it for imports. The fork server of
the standard library has imported nodeagent, and forks a process, which enters the host's namespaces and forks
the program. It differs from a real start in /proc/PID/cmdline and environ.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Self

from tests.isolation import enter
from tests.testbed.errors import WorldError
from tests.testbed.inside import OF_A_HOST

PYTHON = (sys.executable, "-P", "-m")
"""How a command line begins that the server can start: the name of a module follows."""

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload([__name__, "tests.testbed.preloaded"])
_starting = Lock()


class Forked:
    """A program that the server has started, with those methods of `subprocess.Popen` that hosts use.

    It enters the namespaces of the process `host`. Its command line begins with `PYTHON`. Without a log,
    `communicate` returns what it has written.
    """

    def __init__(
        self, host: int, args: Sequence[str | Path], env: Mapping[str, str], log: BinaryIO | None = None
    ) -> None:
        self.args = list(map(str, args))
        if tuple(self.args[: len(PYTHON)]) != PYTHON:
            raise WorldError(f"the fork server can't start this: {self.args}")
        self.returncode: int | None = None
        streams = [log.fileno()] * 2 if log else [os.memfd_create(name) for name in ("stdout", "stderr")]
        self._written = [] if log else streams
        outputs = [f"/proc/{os.getpid()}/fd/{stream}" for stream in streams]
        self._reports, reporting = FORKING.Pipe(duplex=False)
        start = (host, self.args[len(PYTHON) :], dict(env), outputs, reporting)
        with reporting, _starting:
            FORKING.Process(target=_start, args=start, daemon=True).start()
        try:
            self.pid: int = self._reports.recv()
            """The program's process id, as the machine sees it."""
        except EOFError as error:
            raise WorldError(f"the fork server could not enter the host to start {self.args}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Forget what it has written, and wait."""
        while self._written:
            os.close(self._written.pop())
        self.wait()

    def poll(self) -> int | None:
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._reports.poll(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._reports.recv()
            self._reports.close()
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, stdin: str, timeout: float) -> tuple[str, str]:
        """Return what the program has written at its end; it can't be given anything to read."""
        if stdin:
            raise WorldError(f"the fork server's programs read nothing: {self.args}")
        self.wait(timeout)
        files = [Path(f"/proc/self/fd/{stream}") for stream in self._written]
        output, errors = (file.read_text("utf-8", "replace") for file in files)
        return output, errors


def _start(
    host: int, command: list[str], env: dict[str, str], outputs: list[str], reporting: "Connection[int, int]"
) -> None:
    """Run a module in a host as `python -m` does, and report its process id and its exit code."""
    streams = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in outputs]
    os.setsid()  # Ctrl-C is for the test process alone
    descriptor = os.pidfd_open(host)
    enter(descriptor, OF_A_HOST)
    os.close(descriptor)
    program = os.fork()
    if program:
        reporting.send(program)
        reporting.send(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]))
        os._exit(0)
    reporting.close()
    for number, stream in enumerate([os.open(os.devnull, os.O_RDONLY), *streams]):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(env)
    module, *sys.argv[1:] = command
    runpy.run_module(module, run_name="__main__", alter_sys=True)
