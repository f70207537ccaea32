"""Process 1 of a container: starts its program, and starts it again if it is killed or hangs.

    python -m nodeagent.supervisor PROGRAM [ARGUMENT...]

A kubelet would do that, too, but slowly: it delays restarts by 10 s, 20 s and so on, and each of its probes
costs 23 ms of CPU time (decision 21).

The program begins with SIGTERM blocked, and has to unblock it.

A process that was stopped (SIGSTOP) is one that hangs. No process of the container can kill process 1, so a
second process, the waker, continues it, and process 1 looks after that one in turn.

The standard library only: this process stays in memory.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

_TICK_SECONDS = 3.0
_SILENT_TICKS = 3
"""Ticks without a sign of life until the program is killed. Not seconds: a machine may have been paused."""
_START_SECONDS = 60.0
"""Until its first sign of life it is not killed: a node that boots is busy."""
_START_TICK_SECONDS = 0.5
"""That sign is noticed soon: from then on, silence counts."""
_SHORT_SECONDS = 1.0
_LIFE_SECONDS = 60.0
_MOST_DEATHS = 10
"""In the seconds above. After that, the container ends: the kubelet delays what dies again and again."""
_KILLED = 128
"""Above it: a signal ended the program or, with HAProxy's master, its worker."""
_SUPERVISOR = "NODEAGENT_SUPERVISOR"
_SIGN = signal.SIGUSR1
_END = (signal.SIGTERM, signal.SIGINT)


def heartbeat(environment: Mapping[str, str] = os.environ) -> None:
    """Tell the supervisor, if one started this process, that it lives; to be called every three seconds.

    Raises:
        OSError: the signal can't be sent.
    """
    if environment.get(_SUPERVISOR) == str(os.getppid()):
        os.kill(os.getppid(), _SIGN)


class Supervisor:
    """Keeps a program running until this process gets a signal to end.

    Args:
        command: The program, found in PATH, and its arguments.
        end_signal: What makes it end.
        end_seconds: How long it continues after this process got SIGTERM.
        answers: Checks whether it works and is not about to end, within a few seconds; None: it is one of
            nodeagent's, which calls `heartbeat`.
    """

    def __init__(
        self,
        command: Sequence[str],
        end_signal: signal.Signals = signal.SIGTERM,
        end_seconds: float = 0.0,
        answers: Callable[[], bool] | None = None,
    ) -> None:
        self._command = [*command]
        self._end_signal = end_signal
        self._end_seconds = end_seconds
        self._answers = answers
        self._program = 0
        self._waker = 0
        self._seen = False
        self._silent = 0
        self._patient_until = 0.0
        self._end_at: float | None = None
        self._ending = False

    def run(self) -> int:
        """Return the program's exit code, once it ended by itself or was asked to. To be called once.

        EFFECTS: starts processes, and kills the program if it hangs.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGHUP, _SIGN, *_END})
        self._waker = _start_waker()
        deaths: list[float] = []
        while True:
            began = time.monotonic()
            code = self._live()
            now = time.monotonic()
            deaths = [at for at in (*deaths, now) if now - at < _LIFE_SECONDS]
            if self._ending or code <= _KILLED or len(deaths) > _MOST_DEATHS:
                return code
            _log(f"{self._command[0]} was killed (exit code {code}): starting it again")
            if now - began < _SHORT_SECONDS:
                time.sleep(_SHORT_SECONDS)

    def _live(self) -> int:
        """Run the program once; return its exit code, when nothing is left of it."""
        # A group of its own: what it started is killed with it.
        environment = {**os.environ, _SUPERVISOR: str(os.getpid())}
        # What passes a signal on must not leave it blocked or ignored, as nohup does with SIGHUP. But
        # nodeagent's own programs start with SIGTERM blocked: it waits for their handler (agent/loop.py).
        self._program = os.posix_spawnp(
            self._command[0],
            self._command,
            environment,
            setpgroup=0,
            setsigmask=() if self._answers else (signal.SIGTERM,),
            setsigdef=(signal.SIGHUP, *_END),
        )
        self._seen, self._silent, self._patient_until = False, 0, time.monotonic() + _START_SECONDS
        tick_at = time.monotonic() + _START_TICK_SECONDS
        while (code := self._reap()) is None:
            self._take_signal(max(0.0, min(tick_at, self._end_at or tick_at) - time.monotonic()))
            now = time.monotonic()
            if self._end_at is not None and now >= self._end_at:
                self._end_at = None
                os.kill(self._program, self._end_signal)
            if now >= tick_at:
                self._tick()
                tick_at = time.monotonic() + (_START_TICK_SECONDS if self._patient_until else _TICK_SECONDS)
        _kill_group(self._program)
        return code

    def _take_signal(self, seconds: float) -> None:
        found = signal.sigtimedwait({signal.SIGCHLD, signal.SIGHUP, _SIGN, *_END}, seconds)
        if found is None:
            return
        if found.si_signo == _SIGN:
            self._seen = True
        elif found.si_signo == signal.SIGHUP:
            os.kill(self._program, signal.SIGHUP)
        elif found.si_signo in _END and not self._ending:
            self._ending = True
            self._end_at = time.monotonic() + self._end_seconds

    def _tick(self) -> None:
        os.kill(self._waker, signal.SIGCONT)
        if self._ending:  # It finishes what it does, however long that takes: the kubelet has a limit.
            with suppress(ProcessLookupError):
                os.killpg(self._program, signal.SIGCONT)
            # HAProxy loses a signal that comes while it executes itself again, for a reload (seen with 2.6
            # and 3.0). Once it has begun to end, its worker does not answer any more.
            if self._end_at is None and self._answers is not None and self._answers():
                os.kill(self._program, self._end_signal)
            return
        answered = self._seen if self._answers is None else self._answers()
        self._seen = False
        if answered:
            self._silent, self._patient_until = 0, 0.0
            return
        if time.monotonic() < self._patient_until:
            return
        self._silent += 1
        if self._silent >= _SILENT_TICKS:
            _log(f"{self._command[0]} does not answer: killing it")
            _kill_group(self._program)

    def _reap(self) -> int | None:
        """Bury what has ended; return the program's exit code if it is one of them, as a shell would."""
        code = None
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return code
            if pid == self._waker:
                self._waker = _start_waker()
            elif pid == self._program:
                ended = os.waitstatus_to_exitcode(status)
                code = ended if ended >= 0 else _KILLED - ended


def _start_waker() -> int:
    """Fork a process that continues this one whenever it was stopped; return its process id."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    while os.getppid() == parent:
        os.kill(parent, signal.SIGCONT)
        time.sleep(_TICK_SECONDS)
    os._exit(0)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _log(message: str) -> None:
    """Write a line as the program does (`--log-format`). The message has nothing that JSON would escape."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if os.environ.get("NODEAGENT_LOG_FORMAT") == "json":
        fields = {"time": now, "level": "WARNING", "logger": "nodeagent.supervisor", "message": message}
        line = ", ".join(f'"{name}": "{value}"' for name, value in fields.items())
        sys.stderr.write(f"{{{line}}}\n")
    else:
        sys.stderr.write(f"{now} WARNING {message}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: the program's."""
    if not arguments:
        sys.stderr.write("usage: python -m nodeagent.supervisor PROGRAM [ARGUMENT...]\n")
        return 1
    return Supervisor(arguments).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
