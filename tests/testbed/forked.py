"""The test process's side of the fork server: starting it, and the programs that it has started."""

import atexit
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Self

from tests.testbed.errors import WorldError

PYTHON = (sys.executable, "-P", "-m")
"""How a command line begins that the server can start: the name of a module follows."""

_ROOT = Path(__file__).parents[2]
# Python reads these before anything can be changed, so they are the server's own.
_INTERPRETER = {"LANG": "C.UTF-8", "PYTHONPATH": str(_ROOT)}
# What processes inherit, and a test process may change after the server's start.
_INHERITED = ("cgroup", "limits")
_PIECE = 65536
_starting = Lock()


class Forked:
    """A program that the server has started, with those methods of `subprocess.Popen` that hosts use.

    Args:
        host: The process whose namespaces it enters.
        args: Its command line, which begins with `PYTHON`.
        env: All of its environment.
        log: Its standard output and error, in a session of its own; without it, `communicate` reads them.
    """

    def __init__(
        self, host: int, args: Sequence[str | Path], env: Mapping[str, str], log: BinaryIO | None = None
    ) -> None:
        self.args = list(map(str, args))
        self.returncode: int | None = None
        channel = _server_for(self.args, env)
        request = {"args": self.args[len(PYTHON) :], "env": dict(env), "session": log is not None}
        self._pipes: list[int] = []
        self._reply, replying = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as ends:
            given = [os.pidfd_open(host), os.open(os.devnull, os.O_RDONLY)]
            if log is None:
                for _ in ("stdout", "stderr"):
                    reading, writing = os.pipe()
                    self._pipes.append(reading)
                    given.append(writing)
            else:
                given += [os.dup(log.fileno()), os.dup(log.fileno())]
            given.append(replying.detach())
            for descriptor in given:
                ends.callback(os.close, descriptor)
            socket.send_fds(channel, [json.dumps(request).encode()], given)
        self.pid = int(self._reply.recv(16) or 0)
        """The program's process id, as the machine sees it."""
        if not self.pid:
            self.__exit__(None, None, None)
            raise WorldError(f"the fork server could not enter the host to start {self.args}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipes and wait."""
        while self._pipes:
            os.close(self._pipes.pop())
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, negative when a signal ended the program; None while it runs."""
        try:
            return self.wait(timeout=0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the program's end and return its exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                code = self._reply.recv(16)
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from error
            # None comes from a server's child that was killed itself.
            self.returncode = int(code or -signal.SIGKILL)
            self._reply.close()
        return self.returncode

    def kill(self) -> None:
        """Kill the program."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, stdin: str, timeout: float) -> tuple[str, str]:
        """Return what the program writes, at its end; it can't be given anything to read.

        Raises:
            subprocess.TimeoutExpired: It took longer.
        """
        if stdin:
            raise WorldError(f"the fork server's programs read nothing: {self.args}")
        deadline = time.monotonic() + timeout
        written = dict.fromkeys(self._pipes, b"")
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(self.args, timeout)
                for key, _ in ready:
                    piece = os.read(key.fd, _PIECE)
                    written[key.fd] += piece
                    if not piece:
                        selector.unregister(key.fd)
        self.wait(max(0.0, deadline - time.monotonic()))
        output, errors = (text.decode(errors="replace") for text in written.values())
        return output, errors


def _server_for(command: Sequence[str], env: Mapping[str, str]) -> socket.socket:
    """Return the server's socket; raises a WorldError if a real start would inherit or read other things."""
    with _starting:
        channel, pid = _server()
    here, there = (
        [Path(f"/proc/{each}/{of}").read_text("ascii") for of in _INHERITED] for each in ("self", pid)
    )
    early = {name: env[name] for name in env if name.startswith(("LANG", "LC_", "PYTHON"))}
    if tuple(command[: len(PYTHON)]) != PYTHON or early != _INTERPRETER or here != there:
        raise WorldError(f"the fork server can't start this as a real start would: {command} {early} {here}")
    return channel


@cache
def _server() -> tuple[socket.socket, int]:
    """Start this test process's server; return the socket whose end is its own, and its process id."""
    channel, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its_end:
        server = subprocess.Popen(
            [*PYTHON, "tests.testbed.forkserver"],
            stdin=its_end.fileno(),
            stdout=subprocess.DEVNULL,
            env=_INTERPRETER | {"PATH": os.environ["PATH"]},
            # Ctrl-C is for the test process alone.
            start_new_session=True,
        )

    def end() -> None:
        channel.close()
        server.wait()

    atexit.register(end)
    return channel, server.pid
